package hostile

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// If a guest reports each exit 10,000 times, with different codes, the first
// report counts, and the engine gets one.
func TestRepeatedExits(t *testing.T) {
	mark := bed.liars.LogSize()
	ctx, p, works, events := beside(t, "repeat-exits")
	proc, code, err := p.idle.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", "echo out; exit 3"}})
	if err != nil || code != 3 || proc.Out.String() != "out\n" {
		t.Errorf("an exec whose exit is repeated: code %d, %v", code, err)
	}
	works()
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := p.idle.Task.Kill(bounded, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	wantKilled(bounded, t, &p.idle.Process)
	works()
	p.alive()
	p.smallShim()
	if size := bed.liars.LogSize() - mark; size > maxLog {
		t.Errorf("the log grew by %d KiB, want at most %d", size>>10, maxLog>>10)
	}
	p.remove(ctx)
	wantExits(ctx, t, events, p.idle, proc.ID(), p.idle.Box.ID())
	oneExit(ctx, t, events, p.Sandbox)
}

// If a guest reports the exit of a container that runs, many times, the engine
// gets one exit, and the pod can be removed.
func TestEarlyExits(t *testing.T) {
	t.Parallel()
	ctx, p, works, events := beside(t, "early-exits")
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	exit, err := p.idle.Task.Wait(bounded) // the task's own end; its output has none
	if err != nil {
		t.Fatal(err)
	}
	select {
	case status := <-exit:
		if code, _, err := status.Result(); code != 7 || err != nil {
			t.Errorf("exit code %d, %v, want the guest's 7", code, err)
		}
	case <-bounded.Done():
		t.Error("no exit was reported")
	}
	works()
	p.alive()
	p.smallShim()
	p.remove(ctx)
	oneExit(ctx, t, events, p.idle)
	oneExit(ctx, t, events, p.Sandbox)
}

// wantExits fails the test unless the container's exit events are of these
// processes, in order.
func wantExits(ctx context.Context, t *testing.T, events *harness.Recorder, c *harness.Container, want ...string) {
	t.Helper()
	list, err := events.Await(ctx, c.Box.ID(), "delete")
	if err != nil {
		t.Error(err)
	}
	var exits []string
	for _, e := range list {
		if e.Topic == "exit" {
			exits = append(exits, e.Exec)
		}
	}
	if !slices.Equal(exits, want) {
		t.Errorf("exit events of %v, want %v", exits, want)
	}
}

// Messages with false lengths on the agent's connection end calls in time, and
// the pod.
func TestWrongLengthsOfCalls(t *testing.T) {
	for _, lie := range []string{"rpc-short", "rpc-long", "rpc-zero", "rpc-huge"} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			ctx, p, works, events := beside(t, lie)
			time.Sleep(2 * time.Second) // it begins a second after the start
			bounded, cancel := context.WithTimeout(ctx, 2*answerTimeout)
			defer cancel()
			short, stop := context.WithTimeout(bounded, 20*time.Second)
			_, _, err := p.idle.ExecRun(short, harness.ExecConfig{Args: []string{"true"}})
			stop()
			if err == nil {
				t.Error("an exec works with false lengths: there is no lie")
			}
			t.Log(err)
			works()
			_ = p.idle.Task.Kill(bounded, syscall.SIGKILL) // the guest may make an error of it
			if code, err := p.idle.Wait(bounded); code != 137 && code != 255 || err != nil {
				t.Errorf("exit code %d, %v, want 137, or 255 for a guest that was lost", code, err)
			}
			p.smallShim()
			p.remove(ctx)
			oneExit(ctx, t, events, p.idle)
			oneExit(ctx, t, events, p.Sandbox)
		})
	}
}

// False lengths on a stream affect the process of that stream alone.
func TestWrongLengthsOfStreams(t *testing.T) {
	for _, lie := range []string{"stream-short", "stream-long", "stream-zero", "stream-huge"} {
		t.Run(lie, func(t *testing.T) {
			t.Parallel()
			ctx, p, works, events := beside(t, lie)
			time.Sleep(2 * time.Second) // it begins a second after the start
			short, stop := context.WithTimeout(ctx, 20*time.Second)
			proc, code, err := p.idle.ExecRun(short, harness.ExecConfig{Args: []string{"echo", "here"}})
			stop()
			if err == nil && code == 0 && proc.Out.String() == "here\n" {
				t.Error("an exec works with false lengths: there is no lie")
			}
			t.Log(err)
			works()
			p.alive()
			p.smallShim()
			bounded, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			if err := p.idle.Task.Kill(bounded, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			wantKilled(bounded, t, &p.idle.Process)
			p.remove(ctx)
			oneExit(ctx, t, events, p.idle)
			oneExit(ctx, t, events, p.Sandbox)
		})
	}
}

// An exit that promises no output is reported, and output that came before it
// arrives or not, but does not delay it.
func TestNoOutputPromised(t *testing.T) {
	t.Parallel()
	ctx, g := lying(t, "no-output")
	p := newPod(ctx, t, g)
	for range 3 {
		_, code, err := p.idle.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", "echo out; exit 3"}})
		if err != nil || code != 3 {
			t.Errorf("exit code %d, %v, want 3", code, err)
		}
	}
	p.alive()
	p.remove(ctx)
}
