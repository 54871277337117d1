package hostile

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// SIGKILL is final even if the guest does not kill, whether it answers nothing
// or "done".
func TestKillIsFinal(t *testing.T) {
	for _, lie := range []string{"ignore-kill", "hang-kill", "hang"} {
		t.Run(lie, func(t *testing.T) {
			ctx, d := lying(t, lie, "")
			p := newPod(ctx, t, d)
			events := d.Record(ctx)
			defer events.Close()
			bounded, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			exit, err := p.idle.Task.Wait(bounded)
			if err != nil {
				t.Fatal(err)
			}
			_ = p.idle.Task.Kill(bounded, syscall.SIGKILL) // the guest may make an error of it
			select {
			case status := <-exit:
				if code, _, err := status.Result(); code != 137 || err != nil {
					t.Errorf("exit code %d, %v, want 137", code, err)
				}
			case <-bounded.Done():
				t.Error("no exit was reported")
			}
			p.remove(ctx)
			oneExit(ctx, t, events, p.idle)
		})
	}
}

// oneExit fails the test unless the container has one exit event.
func oneExit(ctx context.Context, t *testing.T, events *harness.Recorder, c *harness.Container) {
	t.Helper()
	list, err := events.Await(ctx, c.Box.ID(), "delete")
	if err != nil {
		t.Error(err)
	}
	exits := 0
	for _, e := range list {
		if e.Topic == "exit" && (e.Exec == "" || e.Exec == c.Box.ID()) {
			exits++
		}
	}
	if exits != 1 {
		t.Errorf("%d exit events, want 1: %v", exits, list)
	}
}

// If a guest's agent never answers Hello, creating the pod fails in time and
// leaves nothing.
func TestSilent(t *testing.T) {
	ctx, d := lying(t, "silent", "dial_timeout = 20")
	pod, err := d.NewPod(ctx, "pod")
	if err == nil {
		t.Error("a pod was made without its agent's hello")
		_ = pod.Remove(ctx)
	}
	t.Log(err)
}

// Reported exits of other pods' containers, or of ones that do not exist, are
// ignored.
func TestForgedExits(t *testing.T) {
	ctx, d := lying(t, "forge-exits", "")
	works := neighbour(ctx, t)
	events := d.Record(ctx)
	defer events.Close()
	p := newPod(ctx, t, d)
	for i := range 5 {
		works()
		proc, code, err := p.idle.ExecRun(ctx, harness.ExecConfig{Args: []string{"echo", fmt.Sprint(i)}})
		if err != nil || code != 0 || proc.Out.String() != fmt.Sprintln(i) {
			t.Errorf("exec %d: code %d, %v", i, code, err)
		}
	}
	p.alive()
	p.smallShim()
	p.remove(ctx)
	oneExit(ctx, t, events, p.idle)
	for _, e := range events.Of("neighbour") {
		t.Errorf("the guest made an event of its neighbour's: %v", e)
	}
}

// An exit is reported in time even if its announced output never comes.
func TestEndlessOutput(t *testing.T) {
	ctx, d := lying(t, "endless-output", "")
	p := newPod(ctx, t, d, "sh", "-c", "echo out; exit 3")
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	exit, err := p.idle.Task.Wait(bounded)
	if err != nil {
		t.Fatal(err)
	}
	select { // the task's own end; its output has none
	case status := <-exit:
		if code, _, err := status.Result(); code != 3 || err != nil {
			t.Errorf("exit code %d, %v, want 3", code, err)
		}
	case <-bounded.Done():
		t.Error("no exit was reported")
	}
	p.smallShim()
	p.remove(ctx)
}
