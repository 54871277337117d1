// Package mountns gives a thread its own mount namespace without any of the
// host's files: no path in it leads to the host.
package mountns

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread, which must not be used for anything else, into
// a new mount namespace whose root is an empty file system in memory. data are
// tmpfs's mount options. scratch is any directory of the host; it is not changed.
func Enter(scratch, data string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("katabox", scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	if err := unix.Chdir(scratch); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	return changeRoot()
}

// changeRoot makes the working directory the root and releases the old one
// (pivot_root(2), "pivot_root(".", ".")"). If the old root is the initramfs,
// which cannot be left, it is hidden.
func changeRoot() error {
	err := unix.PivotRoot(".", ".")
	switch {
	case err == nil:
		err = os.NewSyscallError("umount", unix.Unmount(".", unix.MNT_DETACH))
	case errors.Is(err, unix.EINVAL):
		if err = os.NewSyscallError("move mount", unix.Mount(".", "/", "", unix.MS_MOVE, "")); err == nil {
			err = os.NewSyscallError("chroot", unix.Chroot("."))
		}
	}
	if err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}
