package service

import (
	"fmt"
	"slices"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
)

// state is a process's state; doc.go has the diagram.
type state int

const (
	creating state = iota
	created
	starting
	running
	paused
	stopped
	deleting
)

var stateNames = [...]string{"creating", "created", "starting", "running", "paused", "stopped", "deleting"}

func (s state) String() string { return stateNames[s] }

// status returns the state in containerd's terms.
func (s state) status() tasktypes.Status {
	switch s {
	case created, starting:
		return tasktypes.Status_CREATED
	case running:
		return tasktypes.Status_RUNNING
	case paused:
		return tasktypes.Status_PAUSED
	case stopped, deleting:
		return tasktypes.Status_STOPPED
	default:
		return tasktypes.Status_UNKNOWN
	}
}

// move moves from one of the given states to another, or returns why it cannot.
func (p *process) move(verb string, to state, from ...state) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(from, p.state) {
		return p.refuse(verb)
	}
	p.state = to
	return nil
}

// check returns an error unless the process is in one of the given states.
func (p *process) check(verb string, in ...state) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(in, p.state) {
		return p.refuse(verb)
	}
	return nil
}

// is reports whether the process is in the given state.
func (p *process) is(s state) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == s
}

// refuse returns the error of a call that the state does not allow. p.mu is
// held.
func (p *process) refuse(verb string) error {
	return fmt.Errorf("cannot %s %s: it is %s: %w", verb, p.name(), p.state, errdefs.ErrFailedPrecondition)
}
