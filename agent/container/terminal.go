package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/pty"
)

// terminal is a pseudo-terminal of a container. The master is polled and not
// blocked on.
type terminal struct{ master, slave *os.File }

// openTerminal opens a terminal of the container's own devpts. Only ioctls name
// its slave end, never a path.
func openTerminal(root *os.File, size *specs.Box) (*terminal, error) {
	master, err := openMaster(root)
	if err != nil {
		return nil, err
	}
	slave, err := openSlave(master, size)
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	return &terminal{master, slave}, nil
}

// openMaster opens /dev/pts/ptmx once it is known to be that device.
func openMaster(root *os.File) (*os.File, error) {
	handle, err := openInside(root, "dev/pts/ptmx", unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	if err := checkMaster(handle); err != nil {
		return nil, err
	}
	return reopen(handle, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK)
}

// reopen opens what an O_PATH descriptor stands for.
func reopen(handle *os.File, flags int) (*os.File, error) {
	path := "/proc/self/fd/" + strconv.Itoa(int(handle.Fd()))
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: handle.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), handle.Name()), nil
}

// checkMaster reports whether handle is devpts's ptmx: a container's root can
// have anything there (fs/devpts/inode.c, mknod_ptmx).
func checkMaster(handle *os.File) error {
	var info unix.Stat_t
	var fs unix.Statfs_t
	fd := int(handle.Fd())
	if err := errors.Join(unix.Fstat(fd, &info), unix.Fstatfs(fd, &fs)); err != nil {
		return fmt.Errorf("inspect %s: %w", handle.Name(), err)
	}
	if fs.Type != unix.DEVPTS_SUPER_MAGIC || info.Mode&unix.S_IFMT != unix.S_IFCHR || info.Rdev != unix.Mkdev(5, 2) {
		return fmt.Errorf("%s is not the terminal multiplexer of a devpts", handle.Name())
	}
	return nil
}

func openSlave(master *os.File, size *specs.Box) (*os.File, error) {
	if size != nil && size.Width != 0 && size.Height != 0 {
		if err := pty.Resize(master, size.Height, size.Width); err != nil {
			return nil, fmt.Errorf("open terminal: %w", err)
		}
	}
	return pty.OpenSlave(master)
}

// ownTerminal makes the container's root the owner of a terminal, as if it had
// opened it. The group is the devpts's.
func (c *Container) ownTerminal(t *terminal) error {
	if c.uid == 0 {
		return nil
	}
	if err := t.slave.Chown(c.uid, -1); err != nil {
		return fmt.Errorf("own terminal: %w", err)
	}
	return nil
}
