package containerd

import (
	"context"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/tests/harness"
)

// When the pause container is deleted before the pod's others, containerd still
// finds those, and each process of the pod has one exit event.
func TestPauseContainerDeletedFirst(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newBusyPod(ctx, t, d)
		if err := pod.Sandbox.Process.Kill(ctx, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wantCode(ctx, t, &pod.Sandbox.Process, 137)
		removed(t, "the pause container", pod.Sandbox.Remove)
		for _, c := range pod.Services {
			// With runc the services run on.
			if err := c.Process.Kill(ctx, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
				t.Error(err)
			}
			if code, err := c.Process.Wait(ctx); code != 137 || err != nil {
				t.Errorf("%s: exit code %d, %v, want 137", c.Box.ID(), code, err)
			}
			if _, err := c.Task.Status(ctx); err != nil {
				t.Errorf("status of %s: %v", c.Box.ID(), err)
			}
		}
		wantCode(ctx, t, pod.exec, 137)
		removed(t, "the rest of the pod", pod.Remove)
		for _, c := range pod.inits() {
			id := c.Box.ID()
			if _, err := recorder.Await(ctx, id, "delete"); err != nil {
				t.Error(err)
			}
			for process, codes := range exits(recorder, id) {
				if len(codes) != 1 {
					t.Errorf("exit events of %s in %s: codes %v, want one", process, id, codes)
				}
			}
		}
	})
}
