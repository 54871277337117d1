package contain

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Jail is what threads are confined to. The caller owns its files, which must
// stay open while threads enter.
type Jail struct {
	// Mounts is the mount namespace (/proc/PID/ns/mnt), and Root the directory
	// in it that becomes the root, opened with O_PATH.
	Mounts, Root *os.File
	// Descriptors is this process's /proc/self/fd, a directory.
	Descriptors *os.File
}

// Enter permanently confines the calling thread. The caller has locked its
// goroutine to the thread and must never unlock it. After an error the thread
// is partly confined, and must not be used.
func (j Jail) Enter() error {
	// Separate working and root directories for the thread (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare root directory: %w", err)
	}
	if err := unix.Setns(int(j.Mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the share's mount namespace: %w", err)
	}
	if err := errors.Join(unix.Fchdir(int(j.Root.Fd())), unix.Chroot(".")); err != nil {
		return fmt.Errorf("change root to the share: %w", err)
	}
	if err := unix.Fchdir(int(j.Descriptors.Fd())); err != nil {
		return fmt.Errorf("change directory to the descriptors: %w", err)
	}
	unix.Umask(0)
	if err := limitCapabilities(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return filterCalls()
}

// OpenDescriptors opens this process's /proc/self/fd for Jail, as a detached
// mount: otherwise ".." of a thread's working directory would lead through
// /proc to the host's root.
func OpenDescriptors() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/fd", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: "/proc/self/fd", Err: err}
	}
	return os.NewFile(uintptr(fd), "/proc/self/fd"), nil
}
