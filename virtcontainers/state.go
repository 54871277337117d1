package virtcontainers

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// State is a process's state; see the diagram in doc.go.
type State int

// The states. A container's state is its init's.
const (
	Created State = iota
	Running
	Paused
	Stopped
	Deleted
	// starting shows as Created to the engine: Start is under way.
	starting
)

func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Paused:
		return "paused"
	case Stopped:
		return "stopped"
	case Deleted:
		return "deleted"
	case starting:
		return "being started"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// successors lists the legal transitions. A start that fails leads an init back to
// Created, and stops an exec.
var successors = map[State][]State{
	Created:  {starting, Stopped},
	starting: {Running, Created, Stopped},
	Running:  {Paused, Stopped},
	Paused:   {Running, Stopped},
	Stopped:  {Deleted},
}

// next returns state if the transition from s is legal, or an error.
func (s State) next(state State) (State, error) {
	if !slices.Contains(successors[s], state) {
		return s, fmt.Errorf("it is %s and cannot become %s: %w", s, state, errdefs.ErrFailedPrecondition)
	}
	return state, nil
}

// seen is the state as the engine knows it.
func (s State) seen() State {
	if s == starting {
		return Created
	}
	return s
}

// ending is the host's progress with the end of a process. It only grows.
type ending int

const (
	// alive: nothing is known of an end.
	alive ending = iota
	// told: the guest has reported the exit; further reports are ignored.
	told
	// claimed: one goroutine is reporting the exit, or has reported it.
	claimed
)
