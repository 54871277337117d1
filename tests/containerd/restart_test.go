package containerd

import (
	"context"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// containerd dies and is restarted: the pod runs on, and every operation still
// works.
func TestContainerdComesBack(t *testing.T) {
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := idle(ctx, t, pod)
		before := c.Task.Pid()
		if err := d.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		status, err := c.Task.Status(ctx)
		if err != nil || status.Status != "running" {
			t.Fatalf("status %q, error %v", status.Status, err)
		}
		task, err := c.Box.Task(ctx, nil)
		if err != nil || task.Pid() != before {
			t.Fatalf("the task's pid is not %d: %v, error %v", before, task, err)
		}
		if got := execOut(ctx, t, c, harness.ExecConfig{Args: script("echo still here")}); got != "still here\n" {
			t.Errorf("exec printed %q", got)
		}
		exit, err := task.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := task.Kill(ctx, 9); err != nil {
			t.Fatal(err)
		}
		if got := <-exit; got.Error() != nil || got.ExitCode() != 137 {
			t.Errorf("exit code %d, error %v", got.ExitCode(), got.Error())
		}
		after := idle(ctx, t, pod)
		if got := execOut(ctx, t, after, harness.ExecConfig{Args: script("echo new")}); got != "new\n" {
			t.Errorf("exec in a new container printed %q", got)
		}
	})
}
