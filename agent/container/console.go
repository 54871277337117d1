package container

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// consoleTimeout bounds the wait for a terminal that the started process has
// sent already.
const consoleTimeout = 10 * time.Second

// consoleSockets is the pair of sockets by which a process in a container
// sends the master end of the terminal it made there.
type consoleSockets struct {
	parent int
	child  *os.File
}

func newConsoleSockets() (*consoleSockets, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make console sockets: %w", err)
	}
	return &consoleSockets{parent: fds[0], child: os.NewFile(uintptr(fds[1]), "console")}, nil
}

func (s *consoleSockets) close() {
	_ = unix.Close(s.parent)
	_ = s.child.Close()
}

// receive takes the terminal's master end out of the socket, as a file that
// is polled and not blocked on.
func (s *consoleSockets) receive() (*os.File, error) {
	timeout := unix.NsecToTimeval(consoleTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.parent, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, fmt.Errorf("receive console: %w", err)
	}
	name := make([]byte, 256)
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(s.parent, name, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("receive console: %w", err)
	}
	fd, err := parseRights(control[:n])
	if err != nil {
		return nil, fmt.Errorf("receive console: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("receive console: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "console"), nil
}

func parseRights(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 {
		return 0, errors.New("no file was sent")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	if len(fds) != 1 {
		return 0, errors.New("not one file was sent")
	}
	return fds[0], nil
}
