package monitor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// enter moves the calling thread into the network, IPC, UTS and mount namespaces
// and to the root directory of a process. Engines inspect them: the network that
// they set up, and the processes and files that a container sees, which must not
// be the host's.
func enter(pid int) error {
	if pid == 0 {
		return nil
	}
	err := enterAll(pid)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH): // the process that represents it has, too
		return fmt.Errorf("the container's process has ended: %w", err)
	case err != nil:
		return fmt.Errorf("enter namespaces of process %d: %w", pid, err)
	}
	return nil
}

func enterAll(pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	root, err := unix.Open(filepath.Join(dir, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(root)
	// A thread that shares its root directory with others cannot change its mount
	// namespace (setns(2), CLONE_NEWNS).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// The mount namespace comes last: the paths of the others are those of the
	// host.
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, name := range []string{"net", "ipc", "uts", "mnt"} {
		fd, err := unix.Open(filepath.Join(dir, "ns", name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open namespace %s: %w", name, err)
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		if err := unix.Setns(fd, 0); err != nil {
			return os.NewSyscallError("setns", err)
		}
	}
	return errors.Join(unix.Fchdir(root), unix.Chroot("."))
}
