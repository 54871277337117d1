package sizing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/config"
)

// A process that has a machine for no pod yet is in its own cgroup, which is
// bounded, and in its former one afterwards.
func TestConfine(t *testing.T) {
	path := fmt.Sprintf("/kata_overhead/spares/%d", os.Getpid())
	before := cgroups(t)
	cfg := &config.Config{Hypervisor: config.Hypervisor{MemoryMiB: 256, MaxMemoryMiB: 1024}}
	leave := Confine("", cfg, hypervisor.AccelKVM)
	t.Cleanup(func() { _ = leave(context.Background()) })
	if !strings.Contains(cgroups(t), path+"\n") {
		if unix.Access("/sys/fs/cgroup", unix.W_OK) == nil {
			t.Errorf("the process is in %s", cgroups(t))
		}
		t.Skip("no cgroup can be made here")
	}
	found := 0
	for file, want := range map[string]string{
		"/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes": fmt.Sprint(1284 << 20), "/sys/fs/cgroup" + path + "/memory.max": fmt.Sprint(1284 << 20),
		"/sys/fs/cgroup/pids" + path + "/pids.max": "8192", "/sys/fs/cgroup" + path + "/pids.max": "8192",
		"/sys/fs/cgroup/cpu" + path + "/cpu.shares": "512",
	} {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found++
		if got := strings.TrimSpace(string(text)); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", file, got, err, want)
		}
	}
	if found == 0 {
		t.Error("no bound is set")
	}
	for range 2 {
		if err := leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if after := cgroups(t); after != before {
		t.Errorf("after it the process is in\n%s\nwas in\n%s", after, before)
	}
}

func cgroups(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
