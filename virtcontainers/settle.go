package virtcontainers

import (
	"context"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// drained is how much output a process had written when it ended.
type drained struct{ stdout, stderr uint64 }

// takeEvent accepts the process's first exit event from the guest. Repeated
// events do not start further goroutines.
func (p *Process) takeEvent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != alive {
		return false
	}
	p.end = told
	close(p.heard)
	return true
}

// finish reports the exit that the guest sent, in the order that doc.go
// describes; signaled says that a signal has ended the process. It runs in its own
// goroutine.
func (p *Process) finish(ctx context.Context, exit Exit, written drained, signaled bool) {
	select {
	case <-p.container.created:
	case <-ctx.Done():
		if !p.container.isCreated() {
			return // the sandbox ended first: the engine never knew of it
		}
	}
	if !p.claimExit() {
		return
	}
	defer p.keepAwake(ctx)()
	p.awaitGate(ctx)
	if p.startFailed() { // what it has written has no reader
		p.record(exit, false)
		return
	}
	if p.execID == "" {
		p.container.awaitExecs(ctx)
		p.container.settleExecs(ctx, (*Process).wasStarted)
	}
	p.setWritten(written)
	if signaled || !p.awaitReader(ctx, written) {
		p.io.Drain(ctx, written.stdout, written.stderr)
	}
	if p.execID == "" {
		p.container.bringBack(ctx)
	}
	p.record(exit, true)
	p.io.CloseStdin() // it has no reader any more
}

// keepAwake waits until the guest, which may still have output of the process, runs, and
// has it run until stop: a sandbox that falls asleep, or sleeps, is woken, and one that
// is being saved is waited for.
func (p *Process) keepAwake(ctx context.Context) (stop func()) {
	leave, err := p.container.sandbox.sleeper.enter(ctx, "the end of "+p.name())
	if err != nil {
		return func() {} // the sandbox has ended, and its guest's output with it
	}
	return leave
}

// awaitReader waits until the engine has taken all that a process wrote before it
// ended by itself. The guest holds more of it than the pipe that a process of runc's
// has: that process would still run, blocked by its reader, and end by a signal or
// with its container. So both end the wait, and awaitReader reports false. It waits for
// the reader only, not for a guest that promised too much.
func (p *Process) awaitReader(ctx context.Context, n drained) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.execID != "" {
		go func() {
			defer cancel()
			select {
			case <-p.container.ended:
			case <-ctx.Done():
			}
		}()
	}
	p.mu.Lock()
	p.giveUpReader = cancel
	if closed(p.doomed) {
		cancel()
	}
	p.mu.Unlock()
	p.io.Await(ctx, n.stdout, n.stderr)
	return ctx.Err() == nil
}

// signaled ends awaitReader, unless the signal is one that a process ignores by
// default or that stops it (signal(7)): clients forward SIGWINCH whenever their window
// changes, and SIGTSTP for ^Z.
func (p *Process) signaled(signal uint32) {
	switch unix.Signal(signal) {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH:
		return
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.giveUpReader != nil {
		p.giveUpReader()
	}
}

func (p *Process) setWritten(n drained) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = n
}

// flush lets an engine that has not read all of the output by the exit read on: it
// is asked to remove the process.
func (p *Process) flush(ctx context.Context) {
	p.mu.Lock()
	n := p.written
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	p.io.Await(ctx, n.stdout, n.stderr)
}

// flushWait bounds flush, as in runc's shim (containerd,
// cmd/containerd-shim-runc-v2/process).
const flushWait = 10 * time.Second

// bringBack copies the container's results to the host before its exit is
// reported, because they are read then.
func (c *Container) bringBack(ctx context.Context) {
	if err := c.files.BringBack(ctx); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the container's termination message is lost")
	}
}

// willExit reports whether an exit of the process will be, or is just being,
// reported.
func (p *Process) willExit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == Running || p.state == Stopped || p.end != alive && p.state != Deleted
}

// settle reports an exit that the guest can no longer report. observed says
// whether the engine gets an event.
func (p *Process) settle(exit Exit, observed bool) {
	if !p.claimExit() {
		return
	}
	p.awaitAnnouncement()
	p.record(exit, observed)
}

// awaitAnnouncement waits for the announcement of a start that has succeeded, which
// takes a moment. A start that is still under way fails, and is not announced.
func (p *Process) awaitAnnouncement() {
	p.mu.Lock()
	started := p.state == Running || p.state == Paused
	p.mu.Unlock()
	if started {
		<-p.announced
	}
}

// claimExit reports whether the caller is the one that must report the exit.
func (p *Process) claimExit() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == claimed {
		return false
	}
	p.end = claimed
	return true
}

// startFailed reports whether the process, whose exit is not recorded yet, is an exec
// whose start has failed.
func (p *Process) startFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.execID != "" && (p.state == Stopped || p.state == Deleted)
}

// ending reports whether some goroutine reports, or has reported, the exit.
func (p *Process) ending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end == claimed
}

// awaitGate waits until the start was announced. An init that was never
// started has nothing to announce.
func (p *Process) awaitGate(ctx context.Context) {
	p.mu.Lock()
	pending := p.state == starting || p.state == Running || p.state == Paused
	p.mu.Unlock()
	if !pending {
		return
	}
	select {
	case <-p.announced:
	case <-ctx.Done():
	}
}

// record makes the exit known. The first container's exit ends the sandbox: it
// is torn down first, so that nothing of the pod is left on the host when the
// exit is reported. The caller has claimed the exit.
func (p *Process) record(exit Exit, observed bool) {
	s := p.container.sandbox
	if p.execID != "" || p.container.ID != s.ID {
		close(p.known)
		p.tell(exit, observed)
		return
	}
	s.mu.Lock()
	s.tellLast = func() { p.tell(exit, observed) }
	s.mu.Unlock()
	close(p.known)
	s.beginStop()
}

// tell stores the exit, wakes the waiters, and tells the observer. The
// container's stand-in has already ended.
func (p *Process) tell(exit Exit, observed bool) {
	s := p.container.sandbox
	if p.execID == "" {
		if err := p.container.endStandIn(s.lifeCtx); err != nil {
			log.G(s.lifeCtx).WithError(err).Error("the container's process on the host outlives it")
		}
		s.observer.Ending(p.container.ID)
	}
	p.mu.Lock()
	observed = observed && (p.execID == "" || p.state == Running)
	p.stop(exit)
	exit = p.exit
	p.mu.Unlock()
	close(p.done)
	if p.execID == "" {
		s.sizing.Release(p.container.ID)
	}
	if observed {
		s.observer.Exited(exit)
	}
	close(p.reported)
}

// stop makes the process stopped, with that exit, unless it is already: an exec whose start
// failed or was given up, which may be deleted before its exit is told. mu is held.
func (p *Process) stop(exit Exit) {
	if p.state == Stopped || p.state == Deleted {
		return
	}
	exit.ContainerID, exit.ExecID, exit.PID = p.container.ID, p.execID, p.container.PID()
	p.state, p.exit = Stopped, exit
}

// closed reports whether a channel on which nothing is sent is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
