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
func TestManyWatches(t *testing.T) { takesNothing(t, "watches", "watching: Success\n") }

// The same for namespaces, which a container without any privilege can make.
func TestManyNamespaces(t *testing.T) { takesNothing(t, "namespaces", "namespaces: Success\n") }

// takesNothing runs a program that takes much of what the kernel gives to a user, and waits
// for what it says when it has it.
func takesNothing(t *testing.T, program, says string) {
	t.Helper()
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		compileC(ctx, t, program, dir)
		pod := newPod(ctx, t, d)
		taker := add(ctx, t, pod, harness.ContainerConfig{
			Name: "taker", Args: []string{"/programs/" + program},
			Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
				{Type: "bind", Source: dir, Destination: "/programs", Options: []string{"rbind", "ro"}},
			})},
		})
		if err := taker.Out.Await(ctx, "\n"); err != nil {
			t.Fatal(err)
		}
		if got := taker.Out.String(); got != says && bed.runtime.VM {
			t.Errorf("the container says %q, want %q", got, says)
		}
		for _, c := range []*harness.Container{taker, idle(ctx, t, pod)} {
			if out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"echo", "here"}}); out != "here\n" {
				t.Errorf("an exec says %q", out)
			}
		}
	})
}
