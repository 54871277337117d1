package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// unmountWait bounds the wait for users of a disk: the mount namespace of a
// container that has just ended, or of one that is being made and has not left
// the agent's mounts yet.
const (
	unmountWait = 5 * time.Second
	unmountPoll = 10 * time.Millisecond
)

// Unmount undoes Mount, in reverse order. It blocks until the kernel has
// released disks that no other storage uses, unmountWait at most for each:
// unplugging a disk earlier loses data and, later, blocks the removal of other
// disks. If a disk is still in use after that, the error, an
// errdefs.ErrFailedPrecondition, names its users; the call may be repeated. A
// storage that is not mounted is not an error.
func (m *Mounter) Unmount(storages []*api.Storage) error {
	var errs []error
	for i := len(storages) - 1; i >= 0; i-- {
		if err := m.unmountOne(storages[i]); err != nil {
			errs = append(errs, fmt.Errorf("unmount storage %s: %w", storages[i].GetTarget(), err))
		}
	}
	return errors.Join(errs...)
}

func (m *Mounter) unmountOne(s *api.Storage) error {
	target := s.GetTarget()
	ctx, cancel := context.WithTimeout(context.Background(), unmountWait)
	defer cancel()
	if err := m.unmountTarget(ctx, s); err != nil {
		return err
	}
	_ = os.Remove(target) // Still in use by another storage: left alone.
	return errors.Join(m.release(ctx, target), m.unreserve(target))
}

// unmountTarget unmounts a target. A mount that uses a disk is not detached
// lazily while it is busy: the disk would invisibly stay in use.
func (m *Mounter) unmountTarget(ctx context.Context, s *api.Storage) error {
	err := m.whileBusy(ctx, keepsDisk(s), func() error {
		return m.kernel.unmount(s.GetTarget(), unix.UMOUNT_NOFOLLOW)
	})
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EBUSY):
		return err
	case keepsDisk(s):
		return fmt.Errorf("%w: %s (%w)", err, m.filesIn(s.GetTarget()), errdefs.ErrFailedPrecondition)
	}
	return m.kernel.unmount(s.GetTarget(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

// keepsDisk reports whether a storage is a disk or may consist of some.
func keepsDisk(s *api.Storage) bool {
	return s.GetDriver() == virtioBlk || s.GetDriver() == scsi || s.GetDriver() == "overlay"
}

// release waits until the disks below an unmounted target are free, unless
// other storages use them.
func (m *Mounter) release(ctx context.Context, target string) error {
	for _, disk := range m.letGo(target) {
		if err := m.releaseDisk(ctx, disk); err != nil {
			return err
		}
	}
	m.forget(target)
	return nil
}

func (m *Mounter) releaseDisk(ctx context.Context, disk Disk) error {
	err := m.whileBusy(ctx, true, func() error {
		if m.inUse(disk) {
			return nil
		}
		return m.kernel.openDisk(disk, unix.O_EXCL) // EBUSY while it is mounted (open(2)).
	})
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("release disk %s: %w: %s (%w)", disk.Node, err, m.mountsOf(disk), errdefs.ErrFailedPrecondition)
	}
	return nil // Another error: the disk no longer exists.
}

// whileBusy retries, if again allows, while the kernel reports EBUSY and ctx
// lasts.
func (m *Mounter) whileBusy(ctx context.Context, again bool, try func() error) error {
	poll := time.NewTicker(unmountPoll)
	defer poll.Stop()
	for {
		err := try()
		if !again || !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return err
		}
	}
}

// letGo records that a storage is unmounted and returns its disks, if it has
// any.
func (m *Mounter) letGo(target string) []Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, ok := m.disks[target]
	if ok {
		used.released = true
		m.disks[target] = used
	}
	return used.disks
}

// inUse reports whether a mounted storage uses the disk.
func (m *Mounter) inUse(disk Disk) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, used := range m.disks {
		if !used.released && slices.Contains(used.disks, disk) {
			return true
		}
	}
	return false
}
