package virtcontainers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers"
)

// A client whose Start of an exec ran into its deadline deletes the exec at once, and
// does not come again: Delete and Kill wait for the start.
func TestDeleteWhileExecStarts(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	e := p.exec(c, "e1")
	hanging := p.host.Agent.Hang("Start")
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- e.Start(ctx, ignore) }()
	await(t, "the start", hanging)

	soon, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := e.Kill(soon, uint32(unix.SIGKILL), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("kill: %v, want the end of its time", err)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := e.Delete(t.Context())
		deleted <- err
	}()
	select {
	case err := <-deleted:
		t.Errorf("an exec was deleted while it was being started: %v", err)
		deleted <- err
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	if err := await(t, "the start's end", started); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	if err := await(t, "the deletion", deleted); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.Process("e1"); !errdefs.IsNotFound(err) {
		t.Errorf("the exec is still there: %v", err)
	}
}

// An exit follows the start to which it belongs, also when the machine ends while
// the start is being announced.
func TestExitFollowsItsStart(t *testing.T) {
	p := newPod(t)
	process := initOf(t, p.create(sandboxID))
	err := process.Start(t.Context(), func(virtcontainers.ProcessInfo) {
		p.host.VM().Die(hypervisor.ErrPowerOff)
		time.Sleep(100 * time.Millisecond) // for the exit to be reported, wrongly
		p.observer.expect(t)
	})
	if err != nil {
		t.Error(err)
	}
	p.awaitStopped()
	p.observer.expect(t, "pod=255")
}

// The engine may read what an exec has written, and a container, while it deletes
// them.
func TestDeleteFlushes(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	for _, execID := range []string{"e1", ""} {
		process := initOf(t, c)
		if execID != "" {
			process = p.exec(c, execID)
			p.start(process)
		}
		output := process.IO().(*testIO)
		p.exits(sandboxID, execID, 0)
		statusOf(t, process)
		var err error
		if execID != "" {
			_, err = process.Delete(t.Context())
		} else {
			_, err = c.Delete(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		output.mu.Lock()
		if len(output.flushed) != 1 || output.closed == 0 {
			t.Errorf("%q: flushed %v before it was closed, closed %d times", execID, output.flushed, output.closed)
		}
		output.mu.Unlock()
	}
}
