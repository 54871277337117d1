package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// Engines copy files through /proc/PID/root: both ways, into volumes too, and
// never to or from the host's own files.
func TestCopyThroughTheProcess(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		_, mounted := volume(t)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{mounted},
		})
		root := fmt.Sprintf("/proc/%d/root", c.Task.Pid())
		for _, dir := range []string{"/", "/volume"} {
			if err := os.WriteFile(filepath.Join(root, dir, "in"), []byte("from the host"), 0o644); err != nil {
				t.Fatal(err)
			}
			works(ctx, t, c, fmt.Sprintf("grep -q 'from the host' %s/in && echo from the container > %s/out", dir, dir))
			if data, err := os.ReadFile(filepath.Join(root, dir, "out")); err != nil || string(data) != "from the container\n" {
				t.Errorf("%s: out has %q, %v", dir, data, err)
			}
		}
		if !bed.runtime.VM {
			return
		}
		canary := filepath.Join(t.TempDir(), "canary")
		if err := os.WriteFile(canary, []byte("the host's"), 0o600); err != nil {
			t.Fatal(err)
		}
		works(ctx, t, c, fmt.Sprintf("ln -s %s /leads && ln -s %s /dir && ln -s %s /volume/leads", canary, filepath.Dir(canary), canary))
		for _, name := range []string{"leads", "dir/canary", "volume/leads"} {
			if err := os.WriteFile(filepath.Join(root, name), []byte("overwritten"), 0o600); !errors.Is(err, unix.ELOOP) {
				t.Errorf("a write to %s says %v, want that the link is not followed", name, err)
			}
		}
		if data, err := os.ReadFile(canary); err != nil || string(data) != "the host's" {
			t.Errorf("the host's file has %q, %v", data, err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("a write to what is the guest's says %v, want a read-only file system", err)
		}
	})
}

// A signal to a container's stand-in is passed to the container.
func TestSignalToTheProcess(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		a, b := idle(ctx, t, pod), idle(ctx, t, pod)
		trap := add(ctx, t, pod, harness.ContainerConfig{
			Args: []string{"sh", "-c", "trap 'exit 7' TERM; echo ready; while true; do sleep 0.1; done"},
		})
		if err := trap.Out.Await(ctx, "ready"); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			c      *harness.Container
			signal unix.Signal
			code   uint32
		}{{a, unix.SIGKILL, 137}, {trap, unix.SIGTERM, 7}} {
			if err := unix.Kill(int(test.c.Task.Pid()), test.signal); err != nil {
				t.Fatal(err)
			}
			wantCode(ctx, t, &test.c.Process, test.code)
		}
		works(ctx, t, b, "true")
	})
}

// For the pids that the engine has, ps on the host shows the container's
// stand-in, and no unrelated process.
func TestTopOnTheHost(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{Args: []string{"sh", "-c", "sleep 100001 & sleep 100002; wait"}})
		works(ctx, t, c, "for i in $(seq 100); do [ $(pgrep sleep | wc -l) = 2 ] && break; sleep 0.1; done")
		pids, err := c.Task.Pids(d.Context(ctx))
		if err != nil || len(pids) != 3 || pids[0].Pid != c.Task.Pid() && bed.runtime.VM {
			t.Fatalf("processes %v, %v, want three, the first %d", pids, err, c.Task.Pid())
		}
		out, err := exec.CommandContext(ctx, "ps", "-eo", "pid,args").Output()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range bytes.Lines(out) {
			for _, p := range pids {
				fields := strings.Fields(string(line))
				if fields[0] != fmt.Sprint(p.Pid) {
					continue
				}
				if found++; !strings.Contains(string(line), "sleep 10000") {
					t.Errorf("a process of the host that is not the container's: %s", line)
				}
			}
		}
		if want := map[bool]int{true: 1, false: 3}[bed.runtime.VM]; found != want {
			t.Errorf("ps shows %d processes, want %d", found, want)
		}
	})
}
