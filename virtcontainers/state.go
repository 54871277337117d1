package virtcontainers

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// State is where a process is in its life; see the diagram in doc.go.
type State int

// The states. A container's state is its init's.
const (
	Created State = iota
	Running
	Paused
	Stopped
	Deleted
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
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// successors lists the legal transitions.
var successors = map[State][]State{
	Created: {Running, Stopped},
	Running: {Paused, Stopped},
	Paused:  {Running, Stopped},
	Stopped: {Deleted},
}

// next is the transition from s to state, or an error that says what is wrong
// with it.
func (s State) next(state State) (State, error) {
	if !slices.Contains(successors[s], state) {
		return s, fmt.Errorf("it is %s and cannot become %s: %w", s, state, errdefs.ErrFailedPrecondition)
	}
	return state, nil
}
