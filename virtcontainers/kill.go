package virtcontainers

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// The host enforces a SIGKILL: the guest has kill_timeout to report the exit.
// After that the process counts as ended with 137. A guest that does not answer,
// or that still runs a container, is ended too: it could not be trusted to end
// its other containers either. One that answers and still runs an exec stays:
// the exec ends with its container at the latest. Engines kill execs that are
// slow, as those of a probe: on a busy host that is no reason to end a guest
// sooner than its health check would.
//
// While the sandbox hibernates, wakes or is saved, the guest cannot be asked. That
// may take long, so the VMM is asked instead: one that does not answer would not let
// the guest run again. A container's SIGKILL waits for the memory no longer than a
// sandbox that ends: engines end the containers first, and the sandbox only after that.

const (
	sigkill = uint32(unix.SIGKILL)
	// probeWait bounds asking the guest whether a killed process still runs.
	probeWait = 5 * time.Second
	// slowGuest is the factor by which timeouts are longer for a guest under
	// TCG than with KVM.
	slowGuest = 6
)

// killTimeout is how long the guest may take to report the exit of a process
// that got SIGKILL. It saturates: the configuration takes up to 136 years.
func (s *Sandbox) killTimeout() time.Duration {
	timeout := s.opts.Config.Agent.KillTimeout
	if s.platform.Accel == hypervisor.AccelTCG {
		timeout = min(timeout, math.MaxInt64/slowGuest) * slowGuest
	}
	return timeout
}

// expectEnd has the end of the process enforced if the signal ends it in any
// case. It reports whether it does.
func (p *Process) expectEnd(signal uint32) bool {
	if signal != sigkill {
		return false
	}
	p.mu.Lock()
	first := !closed(p.doomed)
	if first {
		close(p.doomed)
	}
	p.mu.Unlock()
	s := p.container.sandbox
	if first {
		select {
		case s.kills <- p:
		case <-s.lifeCtx.Done():
		}
	}
	return true
}

// watchKills enforces the ends of killed processes until the sandbox ends.
func (s *Sandbox) watchKills() {
	for {
		select {
		case p := <-s.kills:
			s.watchers.Go(p.enforceEnd)
		case <-s.lifeCtx.Done():
			return
		}
	}
}

// enforceEnd waits until the process has ended, and ends it if the guest does
// not.
func (p *Process) enforceEnd() {
	s := p.container.sandbox
	// The time begins when the guest runs, and the sandbox does not hibernate
	// meanwhile.
	leave, ok := p.awaitGuest()
	if !ok {
		return
	}
	defer leave()
	timeout := s.killTimeout()
	if p.awaitEnd(timeout) {
		return
	}
	says := p.askGuest(min(timeout, probeWait))
	if !p.claimExit() {
		return // its exit was reported meanwhile, and its output is being drained
	}
	log.G(s.lifeCtx).Warnf("no exit of %s was reported within %v of SIGKILL: it counts as killed", p.name(), timeout)
	cause := fmt.Errorf("%s did not end within %v of SIGKILL: %s", p.name(), timeout, says)
	if p.execID != "" {
		p.recordWithout(ExitKilled)
		if says == silent && p.askGuest(max(timeout, s.opts.Config.Agent.HealthTimeout)) == silent {
			s.lose(cause)
		}
		return
	}
	p.container.settleExecs(s.lifeCtx, (*Process).wasStarted)
	if says.endsGuest(p.container) {
		// Before the exit is recorded, which makes the sandbox's own container
		// end the sandbox: a guest that does not answer is not asked again then.
		s.lose(cause)
	}
	p.container.awaitExecs(s.lifeCtx)
	p.record(Exit{Status: ExitKilled, At: time.Now()}, true)
}

// awaitEnd waits until the process or the sandbox has ended. It reports false if the
// guest has taken longer than timeout for that. A SIGKILL whose caller has given up is
// sent here, once: while the sandbox slept it may not have reached the guest. An engine
// that repeats a SIGKILL which fails does not put off the end by that.
func (p *Process) awaitEnd(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	unsent := p.unsent
	for {
		select {
		case <-p.done:
			return true
		case <-p.container.sandbox.lifeCtx.Done():
			return true
		case <-unsent:
			unsent = nil
			p.sendKill(min(timeout, probeWait))
			timer.Reset(timeout)
		case <-timer.C:
			return false
		}
	}
}

// sendKill sends SIGKILL once more.
func (p *Process) sendKill(timeout time.Duration) {
	s := p.container.sandbox
	client, err := s.agent()
	if err == nil {
		ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
		defer cancel()
		_, err = client.Task().Kill(ctx, &task.KillRequest{ID: p.container.ID, ExecID: p.execID, Signal: sigkill})
	}
	if err != nil && !errdefs.IsNotFound(guest.Err(err)) {
		log.G(s.lifeCtx).WithError(err).Warnf("SIGKILL did not reach %s", p.name())
	}
}

// noteUnsent notes that a signal may not have reached the guest.
func (p *Process) noteUnsent(signal uint32) {
	if signal != sigkill {
		return
	}
	select {
	case p.unsent <- struct{}{}:
	default: // it is going to be sent
	}
}

// awaitGuest waits until the guest runs; leave must follow then. ok is false if the
// sandbox ends before that, for example because its VMM does not answer.
func (p *Process) awaitGuest() (leave func(), ok bool) {
	s, began := p.container.sandbox, time.Now()
	timeout := s.killTimeout()
	if p.execID != "" {
		timeout = max(timeout, s.opts.Config.Agent.HealthTimeout)
	}
	for {
		leave, err := s.enterWithin(timeout, "SIGKILL for "+p.name())
		if err == nil {
			return leave, true
		}
		if s.lifeCtx.Err() != nil {
			return nil, false
		}
		if err := p.mayAwait(began, min(timeout, probeWait)); err != nil {
			s.lose(fmt.Errorf("%s got SIGKILL, and the guest does not run: %w", p.name(), err))
			return nil, false
		}
	}
}

// mayAwait returns why a guest that does not run is no longer waited for, or nil. The
// VMM has timeout to answer.
func (p *Process) mayAwait(began time.Time, timeout time.Duration) error {
	s := p.container.sandbox
	// An exec ends with its container at the latest: one that is slow ends no sandbox.
	if h := s.sleeper.hibernation(); h != nil && p.execID == "" && time.Since(began) > h.rouseTimeout() {
		return fmt.Errorf("its memory was not restored within %v", h.rouseTimeout())
	}
	if err := s.askVMM(timeout); err != nil {
		return fmt.Errorf("its machine did not answer within %v: %w", timeout, err)
	}
	return nil
}

func (s *Sandbox) enterWithin(timeout time.Duration, call string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
	defer cancel()
	return s.sleeper.enter(ctx, call)
}

func (s *Sandbox) askVMM(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
	defer cancel()
	return s.vm.Answer(ctx)
}

// unlessDoomed returns a context that also ends when the process gets SIGKILL.
func (p *Process) unlessDoomed(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.doomed:
			cancel(fmt.Errorf("%s got SIGKILL: %w", p.name(), errdefs.ErrUnavailable))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// fate is what the guest says about a process that should have ended.
type fate int

const (
	silent fate = iota // nothing
	runs
	gone
)

func (f fate) String() string {
	return [...]string{"the guest does not answer", "the guest runs it", "it is gone"}[f]
}

// endsGuest reports whether the guest is lost together with a container. One that
// answers, but still runs the sandbox's own container, ends with the sandbox as
// usual, so that it can flush its disks.
func (f fate) endsGuest(c *Container) bool {
	return f == silent || f == runs && c.ID != c.sandbox.ID
}

// askGuest asks the guest whether the process still runs.
func (p *Process) askGuest(timeout time.Duration) fate {
	s := p.container.sandbox
	client, err := s.agent()
	if err != nil {
		return silent
	}
	ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
	defer cancel()
	state, err := client.Task().State(ctx, &task.StateRequest{ID: p.container.ID, ExecID: p.execID})
	switch {
	case errdefs.IsNotFound(guest.Err(err)) || err == nil && state.Status == tasktypes.Status_STOPPED:
		return gone
	case guest.Unanswered(ctx, err) || guest.Disconnected(err):
		return silent
	}
	return runs
}
