package monitor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// deleting is a shim by which another command, such as a delete of the container, sends
// the monitor a signal while it deletes its exec.
type deleting struct {
	task.TTRPCTaskService
	passed chan uint32
}

func (d deleting) Delete(context.Context, *task.DeleteRequest) (*task.DeleteResponse, error) {
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		return nil, err
	}
	<-d.passed
	return &task.DeleteResponse{}, nil
}

func (d deleting) Kill(_ context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	d.passed <- r.Signal
	return &emptypb.Empty{}, nil
}

// dial serves the service and connects to it.
func dial(t *testing.T, service task.TTRPCTaskService) *client.Shim {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	task.RegisterTTRPCTaskService(server, service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(context.Background(), l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	if err := os.WriteFile(filepath.Join(dir, bundle.AddressFile), []byte(bundle.AddressScheme+socket), 0o600); err != nil {
		t.Fatal(err)
	}
	shim, err := client.Connect(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return shim
}

// A signal that comes after the process's end does not replace its exit code: until this
// process exits, none ends it.
func TestSignalAtTheEnd(t *testing.T) {
	shim := dial(t, deleting{passed: make(chan uint32, 1)})
	s := &session{cfg: Config{ID: "c1", ExecID: "e1"}, shim: shim, impatience: newImpatience(), ended: make(chan uint32, 1)}
	s.signals = catch(s)
	defer s.signals.stop()
	s.ended <- 3
	if code := s.end(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
