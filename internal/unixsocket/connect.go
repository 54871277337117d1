package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// backlogPause is the time between two attempts while the server's backlog is
// full.
const backlogPause = 10 * time.Millisecond

// Connect connects to the socket that at refers to (open(2), O_PATH), of type
// SOCK_STREAM or SOCK_SEQPACKET (socket(2)), with the permissions of the calling
// thread. It waits for room in the server's backlog until ctx ends; the
// connection outlives ctx. The caller keeps ownership of at.
func Connect(ctx context.Context, at *os.File, kind int) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), at.Name())
	defer file.Close() // net.FileConn has its own
	if err := connectWhenRoom(ctx, fd, fmt.Sprintf("/proc/thread-self/fd/%d", at.Fd())); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// connectWhenRoom connects once the server's backlog has room.
func connectWhenRoom(ctx context.Context, fd int, path string) error {
	for {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("connect", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backlogPause):
		}
	}
}
