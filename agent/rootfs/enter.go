package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Enter makes the root that of the thread's mount namespace, for the thread and
// for all other processes of that namespace, and unmounts the old one. It makes
// the working directory cwd, "" for none, if it is missing, unless that is a link to the
// process's own files.
//
// The root's propagation needs nothing more: those that [Unsupported] allows are
// set before the root is a mount.
func (r *Root) Enter(cwd string) error {
	if err := r.pivot(); err != nil {
		return fmt.Errorf("error jailing process inside rootfs: %w", err)
	}
	if cwd == "" {
		return nil
	}
	// The thread sees the container's files alone by now: no link leads out.
	err := os.MkdirAll(cwd, dirMode)
	if errors.Is(err, fs.ErrExist) {
		if _, ok := r.leadsToOwn(cwd); ok {
			return nil // The process's chdir decides.
		}
	}
	return err
}

// pivot stacks the old root onto the new one (pivot_root(2), "."), so that it
// needs no directory in the container, and unmounts it from there.
func (r *Root) pivot() error {
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open old root: %w", err)
	}
	defer unix.Close(old)
	if err := unix.Fchdir(r.fd); err != nil {
		return fmt.Errorf("chdir %s: %w", r.path, err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root %s: %w", r.path, err)
	}
	if err := unix.Fchdir(old); err != nil {
		return fmt.Errorf("chdir to old root: %w", err)
	}
	// Unmounting must not propagate to the agent's own namespace.
	if err := mountAt("", ".", unix.MS_SLAVE|unix.MS_REC); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("chdir to new root: %w", err)
	}
	return nil
}
