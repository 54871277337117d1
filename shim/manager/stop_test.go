package manager

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// A shim that gets SIGTERM gives its guest the time to end its processes, and to flush
// its disks: on a host that goes down both may take long.
func TestDisksAreFlushedAtSIGTERM(t *testing.T) {
	host := newHost(t)
	t.Setenv("KATA_CONF_FILE", configFile(t, true))
	p := newParams(t, host.RunDir, "pod", nil)
	path := filepath.Join(host.RunDir, "shim.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	terminate, terminated := context.WithCancel(ownLogger()) // as the signal does
	ended := make(chan error, 1)
	go func() { ended <- ServeOn(terminate, p, host.Platform(), listener) }()
	_, err = connect(t, bundle.AddressScheme+path).Create(t.Context(), &task.CreateTaskRequest{
		ID: "pod", Bundle: p.Bundle, Rootfs: []*types.Mount{{Type: "ext4", Source: disk, Options: []string{"rw", "loop"}}},
	})
	if err != nil {
		t.Error(err)
	}
	var flushed atomic.Bool
	host.Agent.Hang("Kill")
	host.Agent.Hook("PowerOff", func(context.Context, proto.Message) error {
		time.Sleep(6 * time.Second)
		flushed.Store(true)
		host.VM().Die(errors.New("it is off"))
		return nil
	})
	terminated()
	if err := <-ended; err != nil {
		t.Errorf("the shim ended with %v", err)
	}
	if !flushed.Load() {
		t.Error("the shim ended before its guest had flushed its disks")
	}
}
