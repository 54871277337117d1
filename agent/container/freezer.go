package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// Pause freezes every process in the container. If one does not freeze in time, as in
// I/O that hangs, Pause fails, and all run on.
func (c *Container) Pause() error {
	c.cgroupMu.Lock()
	defer c.cgroupMu.Unlock()
	if frozen, err := c.isFrozen(); err != nil || frozen || !c.init.isAlive() {
		return c.precondition("pause", libcontainer.ErrNotRunning, err)
	}
	err := c.cgroups.Freeze(cgroups.Frozen)
	if err == nil {
		return nil
	}
	// Otherwise they would freeze later, when the I/O is done.
	return fmt.Errorf("pause container %s: %w", c.id, errors.Join(err, c.cgroups.Freeze(cgroups.Thawed)))
}

// Resume thaws what Pause froze.
func (c *Container) Resume() error {
	c.cgroupMu.Lock()
	defer c.cgroupMu.Unlock()
	if frozen, err := c.isFrozen(); err != nil || !frozen || !c.init.isAlive() {
		return c.precondition("resume", libcontainer.ErrNotPaused, err)
	}
	if err := c.cgroups.Freeze(cgroups.Thawed); err != nil {
		return fmt.Errorf("resume container %s: %w", c.id, err)
	}
	return nil
}

// hold keeps the container's processes from making others until release is called, as
// libcontainer does to signal them all (signalAllProcesses): a process that is not in the
// list yet would get no signal. A container that was paused stays so. cgroupMu must be
// held.
func (c *Container) hold() (release func() error) {
	if frozen, err := c.isFrozen(); err != nil || frozen {
		return func() error { return nil }
	}
	return holdCgroup(filepath.Join(cgroupRoot, c.cgroup))
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
	for begun := time.Now(); time.Since(begun) < holdTime && !areFrozen(dir); {
		time.Sleep(time.Millisecond)
	}
	return func() error {
		if err := set("0"); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("let processes run on: %w", err)
		}
		return nil
	}
}

// areFrozen reports whether the freeze of a cgroup is complete. Of one that is gone it is.
func areFrozen(dir string) bool {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	return err != nil || strings.Contains(string(events), "frozen 1")
}

func (c *Container) isFrozen() (bool, error) {
	state, err := c.cgroups.GetFreezerState()
	return state == cgroups.Frozen, err
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
