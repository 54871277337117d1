package child

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Socket makes a connection to a helper: ours, and theirs, which the helper inherits
// or is sent, and which the caller closes then. It has no path, so there is nothing to
// clean up, and no other process can connect.
func Socket(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make %s's sockets: %w", name, err)
	}
	theirs = os.NewFile(uintptr(fds[1]), name)
	file := os.NewFile(uintptr(fds[0]), name)
	conn, err := net.FileConn(file) // makes a duplicate
	err = errors.Join(err, file.Close())
	ours, ok := conn.(*net.UnixConn)
	if err != nil || !ok {
		return nil, nil, errors.Join(fmt.Errorf("wrap %s's socket: %w", name, err), theirs.Close())
	}
	return ours, theirs, nil
}
