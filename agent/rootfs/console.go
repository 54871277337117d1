package rootfs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// consoleMode is the mode of a /dev/console that is made as a mountpoint.
const consoleMode = 0o666

// Console mounts a terminal of the container's own devpts onto its /dev/console. It is
// called between Enter and Finish.
func (r *Root) Console(terminal *os.File) error {
	dir, err := r.open("/dev", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("create /dev/console mount target: %w", err)
	}
	defer unix.Close(dir)
	at, err := openConsole(dir)
	if err != nil {
		return fmt.Errorf("create /dev/console mount target: %w", err)
	}
	defer unix.Close(at)
	return mountError(terminal.Name(), "/dev/console", unix.MS_BIND, "", attachCopy(int(terminal.Fd()), at))
}

// openConsole opens the mountpoint and makes it if it is missing. What is there is
// not opened itself: it may be a FIFO.
func openConsole(dir int) (int, error) {
	const path = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	at, err := unix.Openat(dir, "console", path, 0)
	if !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	made, err := unix.Openat(dir, "console", unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, consoleMode)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	if err == nil {
		return made, nil
	}
	return unix.Openat(dir, "console", path, 0)
}
