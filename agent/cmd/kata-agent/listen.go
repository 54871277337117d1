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

// acceptPause is the wait after an error that passes by itself.
const acceptPause = 10 * time.Millisecond

// hostListener accepts connections from the host alone: a process in a
// container can open vsock connections as well as anybody, and must not reach
// the agent should the kernel offer a way back into the guest.
type hostListener struct{ net.Listener }

// listen opens a vsock port for whatever CID the machine has or will get: its
// device may be added later.
func listen(port uint32) (net.Listener, error) {
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil)
	if err != nil {
		return nil, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	return hostListener{l}, nil
}

// Accept waits for the host's next connection. It fails only for good: the
// agent's end is the machine's.
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

// passes tells errors that say nothing of the listener: a peer that is gone,
// or resources that are short for now.
func passes(err error) bool {
	for _, errno := range []syscall.Errno{unix.ECONNABORTED, unix.ECONNRESET, unix.EINTR, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
