package virtcontainers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

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

// pausedIO is stdio that the engine does not read until read is closed.
type pausedIO struct {
	*testIO
	read chan struct{}
}

func (i pausedIO) Drain(context.Context, uint64, uint64) {}

func (i pausedIO) Await(ctx context.Context, _, _ uint64) {
	select {
	case <-i.read:
	case <-ctx.Done():
	}
}

// signal sends a signal to a process that, for the engine, is running.
func (p *pod) signal(process *virtcontainers.Process, signal unix.Signal) {
	p.t.Helper()
	if state := process.Info().State; state != virtcontainers.Running {
		p.t.Errorf("the process is %s", state)
	}
	if err := process.Kill(p.t.Context(), uint32(signal), false); err != nil {
		p.t.Errorf("%v: %v", signal, err)
	}
}

// A process that ends by itself has its exit reported when its output was read, or
// when it gets a signal or its container ends: as with runc, where it would still write.
func TestExitWaitsForTheReader(t *testing.T) {
	for name, test := range map[string]struct {
		end    func(p *pod, e *virtcontainers.Process, output pausedIO)
		status uint32
		held   bool
	}{
		"read": {func(_ *pod, _ *virtcontainers.Process, output pausedIO) { close(output.read) }, 3, true},
		"killed": {func(p *pod, e *virtcontainers.Process, _ pausedIO) {
			p.signal(e, unix.SIGKILL)
		}, 3, true},
		"alone": {func(p *pod, _ *virtcontainers.Process, _ pausedIO) { p.exits(sandboxID, "", 0) }, 3, true},
		"asked": {func(p *pod, e *virtcontainers.Process, _ pausedIO) {
			p.signal(e, unix.SIGTERM)
		}, 3, true},
		"signal": {func(*pod, *virtcontainers.Process, pausedIO) {}, 143, false},
		"resized and stopped": {func(p *pod, e *virtcontainers.Process, output pausedIO) {
			// ctr forwards these: for its window's size, and for ^Z.
			for _, sig := range []unix.Signal{unix.SIGWINCH, unix.SIGTSTP, unix.SIGSTOP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT} {
				p.signal(e, sig)
				select {
				case <-e.Done():
					p.t.Errorf("%s, which ends no process, ends the wait for the reader", unix.SignalName(sig))
				case <-time.After(20 * time.Millisecond):
				}
			}
			close(output.read)
		}, 3, true},
		"no signal": {func(_ *pod, _ *virtcontainers.Process, output pausedIO) { close(output.read) }, 255, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			c := p.run(sandboxID)
			output := pausedIO{newIO(virtcontainers.Streams{}), make(chan struct{})}
			e, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e1", IO: output})
			if err != nil {
				t.Fatal(err)
			}
			p.start(e)
			p.exits(sandboxID, "e1", test.status)
			if test.held {
				select {
				case <-e.Done():
					t.Error("the exit is reported before the output was read")
				case <-time.After(50 * time.Millisecond):
				}
			}
			test.end(p, e, output)
			if status := statusOf(t, e); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
		})
	}
}

// A container's exit is held back like an exec's.
func TestContainersExitWaitsForTheReader(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		checkHeldExit(t, func(_ *pod, _ *virtcontainers.Process, output pausedIO) { close(output.read) })
	})
	t.Run("asked", func(t *testing.T) {
		checkHeldExit(t, func(p *pod, process *virtcontainers.Process, _ pausedIO) { p.signal(process, unix.SIGTERM) })
	})
}

// checkHeldExit checks that the exit of a pod's first container is held back until end,
// and that a signal is refused afterwards.
func checkHeldExit(t *testing.T, end func(*pod, *virtcontainers.Process, pausedIO)) {
	t.Helper()
	p := newPod(t)
	output := pausedIO{newIO(virtcontainers.Streams{}), make(chan struct{})}
	c, err := p.Create(t.Context(), p.options(sandboxID, output), ignore)
	if err != nil {
		t.Fatal(err)
	}
	process := initOf(t, c)
	p.start(process)
	p.exits(sandboxID, "", 3)
	select {
	case <-process.Done():
		t.Error("the exit is reported before the output was read")
	case <-time.After(50 * time.Millisecond):
	}
	end(p, process, output)
	if status := statusOf(t, process); status != 3 {
		t.Errorf("status %d", status)
	}
	err = process.Kill(t.Context(), uint32(unix.SIGTERM), false)
	wantError(t, "a signal after the exit", err, errdefs.IsNotFound, "already finished")
}

// The engine may read what an exec has written, and a container, while it deletes
// them.
func TestDeleteAwaitsTheReader(t *testing.T) {
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
		if output.awaited != 2 || output.closed == 0 || !output.endsAwaited { // at the exit, and then
			t.Errorf("%q: awaited %d times before it was closed, closed %d times", execID, output.awaited, output.closed)
		}
		output.mu.Unlock()
	}
}

// An exec may end in the guest before its start is answered, and the start be given up
// then: it has ended for its engine, which kills and deletes it once, whether or not its
// output has a reader.
func TestStartGivenUpAfterTheExit(t *testing.T) {
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprintf("read %v", read), func(t *testing.T) {
			p := newPod(t)
			c := p.run(sandboxID)
			p.run("c1")
			output := pausedIO{newIO(virtcontainers.Streams{}), make(chan struct{})}
			if read {
				close(output.read)
			}
			e, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e1", IO: output})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			p.host.Agent.After("Start", func(ctx context.Context, _ proto.Message) error {
				p.exits(sandboxID, "e1", 0)
				close(ended)
				<-ctx.Done()
				return ctx.Err()
			})
			ctx, giveUp := context.WithCancel(t.Context())
			started := make(chan error, 1)
			go func() { started <- e.Start(ctx, ignore) }()
			await(t, "the exec's end", ended)
			p.exits("c1", "", 0) // the host learns of it after it has learnt of the exec's exit
			p.observer.expect(t, "c1=0")
			giveUp()
			if err := await(t, "the start's end", started); !errors.Is(err, context.Canceled) {
				t.Errorf("start: %v", err)
			}
			err = e.Kill(t.Context(), uint32(unix.SIGKILL), false)
			wantError(t, "kill", err, errdefs.IsNotFound, "already finished")
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // bounds the wait for the reader
			defer cancel()
			if exit, err := e.Delete(soon); err != nil || exit.Status != virtcontainers.ExitLost {
				t.Errorf("delete: %+v, %v", exit, err)
			}
			if _, err := c.Process("e1"); !errdefs.IsNotFound(err) {
				t.Errorf("the exec is still there: %v", err)
			}
			p.observer.expect(t, "c1=0")
		})
	}
}
