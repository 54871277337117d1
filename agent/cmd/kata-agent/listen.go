package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// acceptPause is the pause after a temporary error.
const acceptPause = 10 * time.Millisecond

// hostListener accepts connections from the host alone: a process in a
// container must not reach the agent if the kernel supports vsock connections
// within the guest.
type hostListener struct{ net.Listener }

// listen opens a vsock port for any CID: the machine's device may be added
// later.
func listen(port uint32) (net.Listener, error) {
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
	if err != nil {
		return nil, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	return hostListener{l}, nil
}

// Accept waits for the host's next connection. It retries temporary errors,
// because the agent's end would be the machine's.
func (l hostListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case passes(err):
			time.Sleep(acceptPause)
		case err != nil:
			return nil, err
		case fromHost(conn.RemoteAddr()):
			return conn, nil
		default:
			_ = conn.Close()
		}
	}
}

func fromHost(addr net.Addr) bool {
	a, ok := addr.(*vsock.Addr)
	return ok && a.ContextID == unix.VMADDR_CID_HOST
}

// passes reports whether an error is temporary: a peer that is gone, or a lack
// of resources.
func passes(err error) bool {
	for _, errno := range []syscall.Errno{unix.ECONNABORTED, unix.ECONNRESET, unix.EINTR, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
