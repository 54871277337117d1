package containerd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// A container that has epoll watch many files takes nothing from the agent, which is the
// same user: execs and new containers work.
func TestManyWatches(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		compileC(ctx, t, "watches", dir)
		pod := newPod(ctx, t, d)
		watcher := add(ctx, t, pod, harness.ContainerConfig{
			Name: "watcher", Args: []string{"/programs/watches"},
			Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
				{Type: "bind", Source: dir, Destination: "/programs", Options: []string{"rbind", "ro"}},
			})},
		})
		if err := watcher.Out.Await(ctx, "\n"); err != nil {
			t.Fatal(err)
		}
		if got, want := watcher.Out.String(), "watching: Success\n"; got != want && bed.runtime.VM {
			t.Errorf("the container says %q, want %q", got, want)
		}
		for _, c := range []*harness.Container{watcher, idle(ctx, t, pod)} {
			if out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"echo", "here"}}); out != "here\n" {
				t.Errorf("an exec says %q", out)
			}
		}
	})
}
