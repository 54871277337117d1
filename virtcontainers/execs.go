package virtcontainers

import (
	"context"
	"fmt"
	"time"
)

// execExitWait bounds how long a container's exit waits for its execs': the
// guest's kernel kills them with the init, and their exits follow immediately.
const execExitWait = 5 * time.Second

// awaitExecs waits until the exits of the container's execs have been reported.
func (c *Container) awaitExecs(ctx context.Context) {
	c.endOnce.Do(func() { close(c.ended) })
	deadline := time.After(execExitWait)
	for _, p := range c.processes() {
		if p == c.init || !p.willExit() {
			continue
		}
		select {
		case <-p.reported:
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settleExecs reports that those of the container's execs were killed whose
// exits the guest has not reported: none outlives the init. It leaves execs whose
// exits are being reported.
func (c *Container) settleExecs(ctx context.Context, which func(*Process) bool) {
	for _, p := range c.processes() {
		if p == c.init || !which(p) {
			continue
		}
		if status, ok := p.giveUp(); ok {
			p.awaitGate(ctx)
			p.recordWithout(status)
		}
	}
}

// recordWithout records the exit of an exec without the guest's report, which may
// run it on: what it still writes has no reader. The caller has claimed the exit.
func (p *Process) recordWithout(status uint32) {
	p.io.Close()
	p.leave()
	p.record(Exit{Status: status, At: time.Now()}, true)
}

// leave leaves an exec to the end of its container: the guest may still have it.
func (p *Process) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
}

// wasUnanswered reports whether the guest may be starting the exec, or run it, although
// its start has failed.
func (p *Process) wasUnanswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unanswered
}

// wasLeft reports whether the guest may still have the exec.
func (p *Process) wasLeft() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// anyExec selects the execs of a container that is being deleted.
func anyExec(*Process) bool { return true }

// wasStarted reports whether the process was started, or is just being started.
func (p *Process) wasStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state != Created
}

// giveUp claims the exit of a process that the guest has not reported, and
// returns the status to report. A start under way fails.
func (p *Process) giveUp() (status uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != alive {
		return 0, false
	}
	p.end = claimed
	if p.state == starting {
		p.stop(Exit{Status: ExitLost, At: time.Now()})
		return ExitLost, true
	}
	return ExitKilled, true
}

// forgetTimeout bounds Forget, from when the sandbox is awake.
const forgetTimeout = 10 * time.Second

// Forget is Delete for an exec that has ended and that its engine does not delete. It
// waits until the sandbox is awake: it neither wakes it nor keeps it awake. The
// sandbox's end ends it.
func (p *Process) Forget() error {
	s := p.container.sandbox
	leave, err := s.sleeper.enterAwake(s.lifeCtx)
	if err != nil {
		return fmt.Errorf("delete %s: %w", p.name(), err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(s.lifeCtx, forgetTimeout)
	defer cancel()
	_, err = p.Delete(ctx)
	return err
}
