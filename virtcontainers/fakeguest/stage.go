package fakeguest

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// stage is how far the guest has come on the way to its pod.
type stage int

const (
	bare stage = iota
	// prepared guests have no pod, but may have containers.
	prepared
	// failed guests could not be given their pod: they take nothing more.
	failed
	ready
)

func (s stage) String() string {
	return [...]string{"bare", "prepared", "being set up", "set up"}[s]
}

// move moves the guest on to a stage from one of others. The caller holds mu.
func (a *Agent) move(to stage, from ...stage) error {
	if !slices.Contains(from, a.stage) {
		return fmt.Errorf("the guest is %s: %w", a.stage, errdefs.ErrFailedPrecondition)
	}
	a.stage = to
	return nil
}

// checkOpen fails if no container may come. The caller holds mu.
func (a *Agent) checkOpen() error {
	if a.stage != prepared && a.stage != ready {
		return fmt.Errorf("the sandbox is not set up: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// isStage reports whether the guest has come to that stage, and not further.
func (a *Agent) isStage(s stage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage == s
}
