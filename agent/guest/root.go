package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newRoot is an empty directory on which the root is mounted once more.
const newRoot = "/mnt"

// EnterRoot makes the root directory a mount that has a parent.
//
// The initramfs is the bottom of the mount tree, and pivot_root(2) refuses to
// move it (fs/namespace.c: "if (!mnt_has_parent(root_mnt))"), so that no
// container could be given its own root. A bind mount of the same tree, moved
// over "/", has a parent and costs no copy.
//
// The bottom, from which the kernel has executed this program, becomes read-only:
// containers reach the program's file by /proc/PID/exe, and could change its mode
// or owner by that.
//
// Preconditions: nothing is mounted yet, and the process has one thread that
// matters: fs_struct is shared by all threads, so chroot applies to them all.
func EnterRoot() error {
	if err := os.MkdirAll(newRoot, 0o755); err != nil {
		return fmt.Errorf("make new root: %w", err)
	}
	if err := unix.Mount("/", newRoot, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the initramfs read-only: %w", err)
	}
	if err := unix.Chdir(newRoot); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot to new root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir to new root: %w", err)
	}
	return nil
}
