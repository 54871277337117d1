package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
)

// socketName is the daemon's socket in the space, while it starts.
const socketName = "/virtiofsd.sock"

// startDaemon starts virtiofsd for a space on a socket there, connects to it,
// and unlinks the socket: the connection is for the VM, and no other can be
// made.
func startDaemon(ctx context.Context, opts ShareOptions, sp *space) (_ backend, conn *os.File, err error) {
	executable, dialect, err := askDaemon(ctx, opts.Daemon)
	if err != nil {
		return nil, nil, err
	}
	listener, err := ask(ctx, sp, func() (*os.File, error) {
		if err := makeRoot(opts); err != nil {
			return nil, err
		}
		return listen(socketName)
	}, (*os.File).Close)
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	room, err := newDaemonRoom(ctx, sp, rootOf(opts), executable)
	if err != nil {
		return nil, nil, err
	}
	d := &daemonBackend{room: room}
	d.Process, err = child.Start(child.Options{
		Path:       executable,
		Args:       append(dialect(rootOf(opts), opts.Cache, child.FirstExtraFD), opts.ExtraArgs...),
		ExtraFiles: []*os.File{listener},
		StderrLine: opts.LogLine,
		Room:       room.room(),
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID,
	})
	if err != nil {
		return nil, nil, errors.Join(err, room.close())
	}
	conn, err = ask(ctx, sp, func() (*os.File, error) {
		conn, err := connect(socketName)
		if removeErr := os.Remove(socketName); err == nil && removeErr != nil {
			err = errors.Join(removeErr, conn.Close())
		}
		return conn, err
	}, (*os.File).Close)
	if err != nil {
		return nil, nil, errors.Join(err, abandon(d.Process), room.close())
	}
	return d, conn, nil
}

func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for virtiofsd: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("listen for virtiofsd: %w", err)
	}
	return f, nil
}

// connect succeeds as soon as the socket listens, before the daemon accepts.
func connect(path string) (*os.File, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("connect to virtiofsd: %w", err)
	}
	defer c.Close()
	f, err := c.File()
	if err != nil {
		return nil, fmt.Errorf("connect to virtiofsd: %w", err)
	}
	return f, nil
}

// tailOf returns the end of the daemon's stderr, in a form to end an error
// message.
func tailOf(p *child.Process) string {
	tail := strings.TrimSpace(p.Stderr().String())
	if tail == "" {
		return ""
	}
	return "; virtiofsd said: " + tail
}
