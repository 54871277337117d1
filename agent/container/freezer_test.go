package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// selfAsInit is the test as a container's init.
func selfAsInit(t *testing.T) initProcess {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "init")
	t.Cleanup(func() { _ = pidfd.Close() })
	return initProcess{fd: pidfd}
}

// A container that does not freeze in time is thawed: otherwise it would freeze later.
func TestPauseThatFails(t *testing.T) {
	slow := &slowFreezer{}
	c := &Container{id: "c", freezer: freezer{cgroups: slow}, init: selfAsInit(t)}
	if err := c.Pause(); !errors.Is(err, errSlow) {
		t.Errorf("pause: %v", err)
	}
	if want := []cgroups.FreezerState{cgroups.Frozen, cgroups.Thawed}; !slices.Equal(slow.states, want) {
		t.Errorf("states %v, want %v", slow.states, want)
	}
}

// A cgroup's processes are held once they are frozen, or after a while if one does not
// freeze, and run on then.
func TestHoldCgroup(t *testing.T) {
	const events, freeze = "cgroup.events", "cgroup.freeze"
	for name, test := range map[string]struct {
		events string
		takes  time.Duration
	}{
		"frozen": {"populated 1\nfrozen 1\n", 0}, "hangs": {"populated 1\nfrozen 0\n", holdTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			state := func() string {
				text, err := os.ReadFile(filepath.Join(dir, freeze))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			for file, text := range map[string]string{events: test.events, freeze: ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			release := holdCgroup(dir)
			if took := time.Since(begun); took != test.takes || state() != "1" {
				t.Errorf("%s: after %v the cgroup has %q", name, took, state())
			}
			if err := release(); err != nil || state() != "0" {
				t.Errorf("%s: then it has %q: %v", name, state(), err)
			}
		})
	}
}

// A cgroup that is removed, or that cannot be frozen, holds nothing up.
func TestHoldCgroupOfNone(t *testing.T) {
	dir := t.TempDir()
	if err := holdCgroup(filepath.Join(dir, "none"))(); err != nil {
		t.Error(err)
	}
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	release := holdCgroup(gone)
	if err := errors.Join(os.RemoveAll(gone), release()); err != nil {
		t.Error(err)
	}
}
