package container

import (
	"errors"
	"fmt"

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
