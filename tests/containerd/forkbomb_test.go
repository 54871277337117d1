package containerd

import (
	"context"
	"sync"
	"syscall"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// forkBomb doubles its processes until the kernel refuses them, and goes on.
const forkBomb = `
bomb() { bomb | bomb & }
bomb
sleep 1000`

// A container that has as many processes as it can get affects neither the pod's machine nor
// the containers that run there, and it can be killed. Then the pod is as before.
func TestForkBomb(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		needVM(t) // without one the host would be full
		pod := newPod(ctx, t, d)
		other := idle(ctx, t, pod)
		bomb := add(ctx, t, pod, harness.ContainerConfig{Name: "bomb", Args: script(forkBomb)})
		if err := bomb.Err.Await(ctx, "can't fork"); err != nil {
			t.Fatal(err)
		}
		// The agent needs more threads to answer all of these at the same time.
		var asked sync.WaitGroup
		for range 64 {
			asked.Go(func() {
				if _, err := other.Task.Metrics(d.Context(ctx)); err != nil {
					t.Error(err)
				}
			})
			asked.Go(func() { _, _, _ = other.ExecRun(ctx, harness.ExecConfig{Args: []string{"sleep", "1"}}) })
		}
		asked.Wait()
		if err := bomb.Task.Kill(d.Context(ctx), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantCode(ctx, t, &bomb.Process, 137)
		if out := execOut(ctx, t, other, harness.ExecConfig{Args: []string{"echo", "here"}}); out != "here\n" {
			t.Errorf("the other container says %q", out)
		}
	})
}
