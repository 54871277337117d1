package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// freezer freezes and thaws a container's processes.
//
// A process that libcontainer's stage starts must not be born frozen. Go's os/exec waits
// in vfork for the child's execve without giving its P away (syscall.rawVforkSyscall): the
// agent would not run on one CPU, nor past the next collection of garbage on several, and
// could not thaw what it waits for.
type freezer struct {
	// cgroups is a manager for the freezer alone: a manager notes the state in the
	// limits that it set last.
	cgroups cgroups.Manager

	mu sync.Mutex
	// starts are those by the stage that are in progress.
	starts int
	// wanted are the pauses that wait for their end; none begins meanwhile.
	wanted int
	// pausing is set while Pause has mu and waits for processes to freeze.
	pausing atomic.Bool
}

// newFreezer returns a manager for a cgroup's freezer.
func newFreezer(config cgroups.Cgroup) (cgroups.Manager, error) {
	config.Resources = &cgroups.Resources{}
	return manager.New(&config)
}

// startTime bounds Pause's wait for processes that are being started.
const startTime = 10 * time.Second

// lockIdle locks mu when no start is in progress. It reports false if one still is
// after startTime.
func (f *freezer) lockIdle() bool {
	f.mu.Lock()
	f.wanted++
	for begun := time.Now(); f.starts > 0; {
		if time.Since(begun) >= startTime {
			f.wanted--
			f.mu.Unlock()
			return false
		}
		f.waitUnlocked()
	}
	f.wanted--
	return true
}

// lockUnwanted locks mu when no pause waits for it.
func (f *freezer) lockUnwanted() {
	f.mu.Lock()
	for f.wanted > 0 { // at most startTime
		f.waitUnlocked()
	}
}

func (f *freezer) waitUnlocked() {
	f.mu.Unlock()
	time.Sleep(time.Millisecond)
	f.mu.Lock()
}

// tryLock locks mu, unless Pause has it and waits, or another has it for long.
func (f *freezer) tryLock() bool {
	for begun := time.Now(); !f.mu.TryLock(); time.Sleep(time.Millisecond) {
		if f.pausing.Load() || time.Since(begun) >= holdTime {
			return false
		}
	}
	return true
}

// freeze freezes the processes and waits until all are. mu must be held.
func (f *freezer) freeze() error {
	f.pausing.Store(true)
	defer f.pausing.Store(false)
	return f.cgroups.Freeze(cgroups.Frozen)
}

func (f *freezer) isFrozen() (bool, error) {
	state, err := f.cgroups.GetFreezerState()
	return state == cgroups.Frozen, err
}

// beginStart keeps the container from being frozen until end is called.
func (c *Container) beginStart() (end func(), err error) {
	f := &c.freezer
	f.lockUnwanted()
	defer f.mu.Unlock()
	if isToFreeze(c.cgroupDir()) {
		return nil, c.precondition("start a process in", libcontainer.ErrPaused, nil)
	}
	f.starts++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.starts--
	}, nil
}

// Pause freezes every process in the container. If one does not freeze in time, as in
// I/O that hangs, or is still being started, Pause fails, and all run on.
func (c *Container) Pause() error {
	f := &c.freezer
	if !f.lockIdle() {
		return fmt.Errorf("pause container %s: the start of a process in it has not ended within %v: %w", c.id, startTime, errdefs.ErrUnavailable)
	}
	defer f.mu.Unlock()
	if frozen, err := f.isFrozen(); err != nil || frozen || !c.init.isAlive() {
		return c.precondition("pause", libcontainer.ErrNotRunning, err)
	}
	err := f.freeze()
	if err == nil {
		return nil
	}
	// Otherwise they would freeze later, when the I/O is done.
	return fmt.Errorf("pause container %s: %w", c.id, errors.Join(err, f.cgroups.Freeze(cgroups.Thawed)))
}

// Resume thaws what Pause froze.
func (c *Container) Resume() error {
	f := &c.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if frozen, err := f.isFrozen(); err != nil || !frozen || !c.init.isAlive() {
		return c.precondition("resume", libcontainer.ErrNotPaused, err)
	}
	if err := f.cgroups.Freeze(cgroups.Thawed); err != nil {
		return fmt.Errorf("resume container %s: %w", c.id, err)
	}
	return nil
}

// hold keeps the container's processes from making others until release is called, as
// libcontainer does to signal them all (signalAllProcesses): a process that is not in the
// list yet would get no signal. A container that is paused stays so. While the stage
// starts a process nothing is held.
func (c *Container) hold() (release func() error) {
	f, dir := &c.freezer, c.cgroupDir()
	thaw := func() error { return nil }
	if !f.tryLock() {
		awaitFrozen(dir)
		return thaw
	}
	if !isToFreeze(dir) && f.starts == 0 {
		thaw = holdCgroup(dir)
	}
	return func() error {
		defer f.mu.Unlock()
		return thaw()
	}
}

// holdTime bounds the wait for processes to freeze. One that does not, as in I/O that
// hangs, forks no other meanwhile.
const holdTime = time.Second

// holdCgroup freezes a cgroup's processes. A kernel without a freezer (before Linux 5.2)
// freezes none.
func holdCgroup(dir string) (release func() error) {
	set := func(state string) error { return os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(state), 0) }
	if set("1") != nil {
		return func() error { return nil }
	}
	awaitFrozen(dir)
	return func() error {
		if err := set("0"); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("let processes run on: %w", err)
		}
		return nil
	}
}

// awaitFrozen waits until a cgroup's processes are frozen, at most holdTime.
func awaitFrozen(dir string) {
	for begun := time.Now(); time.Since(begun) < holdTime && !areFrozen(dir); {
		time.Sleep(time.Millisecond)
	}
}

// isToFreeze reports whether a cgroup's processes are frozen, or are to be. The manager's
// GetFreezerState would wait up to 10 s for the rest of them.
func isToFreeze(dir string) bool {
	state, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze"))
	return err == nil && strings.TrimSpace(string(state)) == "1"
}

func (c *Container) cgroupDir() string { return filepath.Join(cgroupRoot, c.cgroup) }

// areFrozen reports whether the freeze of a cgroup is complete. Of one that is gone it is.
func areFrozen(dir string) bool {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	return err != nil || strings.Contains(string(events), "frozen 1")
}

// precondition is the error of a call that the container's state forbids, with the
// words of libcontainer's unless the state could not be read.
func (c *Container) precondition(verb string, forbidden, err error) error {
	if err != nil {
		return fmt.Errorf("%s container %s: %w", verb, c.id, err)
	}
	return fmt.Errorf("%s container %s: %w: %w", verb, c.id, forbidden, errdefs.ErrFailedPrecondition)
}

// isAlive reports whether the process has not ended yet.
func (i initProcess) isAlive() bool {
	list := []unix.PollFd{{Fd: int32(i.fd.Fd()), Events: unix.POLLIN}}
	_, err := unix.Poll(list, 0)
	return err == nil && list[0].Revents == 0 // pidfd_open(2): readable when it has terminated
}
