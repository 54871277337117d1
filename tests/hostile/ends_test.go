package hostile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// SIGKILL is final even if the guest does not kill, whether it answers nothing
// or "done".
func TestKillIsFinal(t *testing.T) {
	for _, lie := range []string{"ignore-kill", "hang-kill", "hang"} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			ctx, g := lying(t, lie)
			p := newPod(ctx, t, g)
			events := g.Record(ctx)
			defer events.Close()
			awaitHang(lie)
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

// awaitHang waits until the lie "hang" has begun: it does so a second after the
// container's start. A guest that hangs between an exit and the deletion takes a
// minute longer: TestDeletionIsFinal.
func awaitHang(lie string) {
	if lie == "hang" {
		time.Sleep(2 * time.Second)
	}
}

// SIGKILL to the pause container is final too.
func TestKillOfThePauseContainerIsFinal(t *testing.T) {
	for _, lie := range []string{"ignore-kill", "hang"} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			ctx, g := lying(t, lie)
			p := newPod(ctx, t, g)
			events := g.Record(ctx)
			defer events.Close()
			awaitHang(lie)
			bounded, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			_ = p.Sandbox.Task.Kill(bounded, syscall.SIGKILL) // the guest may make an error of it
			wantKilled(bounded, t, &p.Sandbox.Process)
			p.remove(ctx)
			oneExit(ctx, t, events, p.Sandbox)
			oneExit(ctx, t, events, p.idle)
		})
	}
}

// A guest that never answers the deletion of a container is ended, and nothing
// of the pod is left.
func TestDeletionIsFinal(t *testing.T) {
	t.Parallel()
	ctx, g := lying(t, "hang-delete")
	p := newPod(ctx, t, g)
	events := g.Record(ctx)
	defer events.Close()
	bounded, cancel := context.WithTimeout(ctx, 3*answerTimeout)
	defer cancel()
	proc, err := p.idle.Exec(bounded, harness.ExecConfig{Args: []string{"true"}}) // never started
	if err == nil {
		err = proc.Remove(bounded)
	}
	if err != nil {
		t.Error(err)
	}
	p.answers(ctx)
	if err := p.Remove(bounded); err != nil {
		t.Errorf("remove pod: %v", err)
	}
	oneExit(ctx, t, events, p.idle)
	oneExit(ctx, t, events, p.Sandbox)
}

// wantKilled fails the test unless the process ends with 137.
func wantKilled(ctx context.Context, t *testing.T, p *harness.Process) {
	t.Helper()
	if code, err := p.Wait(ctx); code != 137 || err != nil {
		t.Errorf("%s: exit code %d, %v, want 137", p.ID(), code, err)
	}
}

// If a guest does not report the exits of execs, SIGKILL is final for them and
// they do not outlive their container.
func TestExecsWithoutAnExit(t *testing.T) {
	t.Parallel()
	ctx, g := lying(t, "drop-exec-exits")
	p := newPod(ctx, t, g)
	events := g.Record(ctx)
	defer events.Close()
	bounded, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	killed, left := p.sleeper(bounded), p.sleeper(bounded)
	if err := killed.Kill(bounded, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	wantKilled(bounded, t, killed)
	p.alive()
	if err := p.idle.Task.Kill(bounded, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	wantKilled(bounded, t, left)
	wantKilled(bounded, t, &p.idle.Process)
	if err := errors.Join(killed.Remove(ctx), left.Remove(ctx)); err != nil {
		t.Error(err)
	}
	p.remove(ctx)
	list, err := events.Await(ctx, p.idle.Box.ID(), "delete")
	if err != nil {
		t.Error(err)
	}
	var exits []string
	for _, e := range list {
		if e.Topic == "exit" {
			exits = append(exits, e.Exec)
		}
	}
	if want := []string{killed.ID(), left.ID(), p.idle.Box.ID()}; !slices.Equal(exits, want) {
		t.Errorf("exit events of %v, want %v", exits, want)
	}
}

// sleeper starts an exec in the container.
func (p *pod) sleeper(ctx context.Context) *harness.Process {
	p.t.Helper()
	proc, err := p.idle.Exec(ctx, harness.ExecConfig{Args: []string{"sleep", "100000"}})
	if err == nil {
		err = proc.Start(ctx)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return proc
}

// An exec fails in time if its streams are never answered.
func TestStreamsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	ctx, g := lying(t, "hang-streams")
	p := newPod(ctx, t, g)
	time.Sleep(2 * time.Second) // it begins a second after the start
	bounded, cancel := context.WithTimeout(ctx, 2*answerTimeout)
	defer cancel()
	proc, err := p.idle.Exec(bounded, harness.ExecConfig{Args: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- proc.Start(context.WithoutCancel(ctx)) }() // as engines that set no deadline
	select {
	case err := <-started:
		if err == nil {
			t.Error("an exec without streams was started")
		}
	case <-bounded.Done():
		t.Fatalf("the start of an exec has no answer within %v", 2*answerTimeout)
	}
	if err := proc.Remove(ctx); err != nil {
		t.Error(err)
	}
	p.remove(ctx)
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

// If a guest's agent never answers Hello, or does not take the host's key, creating
// the pod fails in time and leaves nothing.
func TestSilent(t *testing.T) {
	for lie, want := range map[string]string{
		"silent": "greet agent", "silent-key": "the machine's key",
		"refuse-key": "it has one from another process of this host", "odd-key": "it answered 42",
	} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			ctx, g := lying(t, lie)
			pod, err := g.NewPod(ctx, "pod", g.tell()...)
			if err == nil {
				_ = pod.Remove(ctx)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("creating the pod: %v, want %q in its error", err, want)
			}
		})
	}
}

// Reported exits of other pods' containers, or of ones that do not exist, are
// ignored.
func TestForgedExits(t *testing.T) {
	t.Parallel()
	ctx, p, works, events := beside(t, "forge-exits")
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
	t.Parallel()
	ctx, g := lying(t, "endless-output")
	p := newPod(ctx, t, g, "sh", "-c", "echo out; exit 3")
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
