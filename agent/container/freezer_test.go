package container

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// slowFreezer is a cgroup with a process in I/O: freezing it fails, and is not undone.
type slowFreezer struct {
	cgroups.Manager
	states []cgroups.FreezerState
}

var errSlow = errors.New("timeout of 10s reached waiting for the cgroup to freeze")

func (s *slowFreezer) Freeze(state cgroups.FreezerState) error {
	s.states = append(s.states, state)
	if state == cgroups.Frozen {
		return errSlow
	}
	return nil
}

func (s *slowFreezer) GetFreezerState() (cgroups.FreezerState, error) { return cgroups.Thawed, nil }

// A container that does not freeze in time is thawed: otherwise it would freeze later.
func TestPauseThatFails(t *testing.T) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "init")
	defer pidfd.Close()
	freezer := &slowFreezer{}
	c := &Container{id: "c", cgroups: freezer, init: initProcess{fd: pidfd}}
	if err := c.Pause(); !errors.Is(err, errSlow) {
		t.Errorf("pause: %v", err)
	}
	if want := []cgroups.FreezerState{cgroups.Frozen, cgroups.Thawed}; !slices.Equal(freezer.states, want) {
		t.Errorf("states %v, want %v", freezer.states, want)
	}
}
