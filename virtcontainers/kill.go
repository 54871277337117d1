package virtcontainers

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// The host enforces a SIGKILL to a container: the guest has kill_timeout to
// report the exit. After that the container counts as ended with 137, and a
// guest that still runs it, or does not answer, is ended too: it could not be
// trusted to end its other containers either.

const (
	// probeWait bounds asking the guest whether a killed container still runs.
	probeWait = 5 * time.Second
	// slowGuest is the factor by which timeouts are longer for a guest under
	// TCG than with KVM.
	slowGuest = 6
)

// killTimeout is how long the guest may take to report the exit of a container
// that got SIGKILL.
func (s *Sandbox) killTimeout() time.Duration {
	timeout := s.opts.Config.Agent.KillTimeout
	if s.platform.Accel == hypervisor.AccelTCG {
		timeout *= slowGuest
	}
	return timeout
}

// expectEnd has the end of the process enforced if the signal ends a whole
// container. It reports whether it does.
func (p *Process) expectEnd(signal uint32) bool {
	if p.execID != "" || signal != uint32(unix.SIGKILL) {
		return false
	}
	p.mu.Lock()
	first := !p.killed
	p.killed = true
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

// watchKills enforces the ends of killed containers until the sandbox ends.
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
	timeout := s.killTimeout()
	select {
	case <-p.done:
		return
	case <-s.lifeCtx.Done():
		return
	case <-time.After(timeout):
	}
	gone := p.container.isGone(min(timeout, probeWait))
	if !p.claimExit() {
		return // its exit was reported meanwhile, and its output is being drained
	}
	log.G(s.lifeCtx).WithField("container", p.container.ID).Warnf("no exit was reported within %v of SIGKILL: the container counts as killed", timeout)
	p.record(Exit{Status: ExitKilled, At: time.Now()}, true)
	if !gone {
		s.lose(fmt.Errorf("container %s did not end within %v of SIGKILL", p.container.ID, timeout))
	}
}

// isGone reports whether the container no longer runs, according to the guest.
func (c *Container) isGone(timeout time.Duration) bool {
	s := c.sandbox
	client, err := s.agent()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.lifeCtx, timeout)
	defer cancel()
	state, err := client.Task.State(ctx, &task.StateRequest{ID: c.ID})
	return errdefs.IsNotFound(guest.Err(err)) || err == nil && state.Status == tasktypes.Status_STOPPED
}
