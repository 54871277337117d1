package reverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

const (
	// backlog is how many connections wait in the kernel for the agent.
	backlog = 128
	// acceptPause is the time until the next try when the process has no
	// descriptor left.
	acceptPause = 100 * time.Millisecond
)

// listen announces connections to a ReverseListen's address, until the host
// closes its connection.
func (s *Server) listen(ctx context.Context, conn net.Conn, what *api.ReverseListen) error {
	l, remove, err := s.open(ctx, what)
	if err != nil {
		return refuse(conn, err)
	}
	room := newSlots()
	defer s.waiting.drop(room) // once no client can connect
	defer remove()
	defer l.Close()
	if err := answer(conn, ""); err != nil {
		return err
	}
	ctx, wait := untilEnd(ctx, conn)
	defer wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() {
		_ = l.Close()
		_ = conn.Close()
	})()
	for {
		incoming, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = incoming.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept at %s: %w", l.Addr(), err)
		case err != nil:
			log.G(ctx).WithError(err).Debug("could not accept a connection for the host")
			pause(ctx, acceptPause)
			continue
		}
		if err := s.announce(ctx, room, conn, incoming); err != nil {
			return err
		}
	}
}

// announce queues a connection, once there is room, and tells the host.
func (s *Server) announce(ctx context.Context, room slots, conn, incoming net.Conn) error {
	id, err := s.waiting.add(ctx, room, streamOf(incoming))
	if err != nil {
		return errors.Join(err, incoming.Close())
	}
	if err := conn.SetWriteDeadline(time.Now().Add(openTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	return api.WriteFrame(conn, &api.Incoming{Connection: id})
}

// streamOf returns conn as a byte stream, with messages framed.
func streamOf(conn net.Conn) relay.HalfCloser {
	switch c := conn.(type) {
	case *net.TCPConn:
		return relay.TCP(c)
	case *net.UnixConn:
		if c.LocalAddr().Network() == "unixpacket" {
			return relay.Packets(c)
		}
	}
	return conn.(relay.HalfCloser) // true for connections of TCP and UNIX listeners
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// open listens; remove cleans up what the listener's Close leaves.
func (s *Server) open(ctx context.Context, what *api.ReverseListen) (l net.Listener, remove func(), err error) {
	switch place := what.GetPlace().(type) {
	case *api.ReverseListen_Tcp:
		address, err := loopback(place.Tcp)
		if err != nil {
			return nil, nil, err
		}
		return openTCP(ctx, address)
	case *api.ReverseListen_Unix:
		return s.openUnix(place.Unix)
	}
	return nil, nil, errors.New("listen: want an address or a UNIX socket")
}

// openUnix makes a UNIX socket. No client can connect before its owner is set.
func (s *Server) openUnix(u *api.UnixSocket) (net.Listener, func(), error) {
	dir := s.SocketDir
	if dir == "" {
		dir = api.GuestSocketDir
	}
	path := u.GetPath()
	if filepath.Clean(path) != path || filepath.Dir(path) != dir {
		return nil, nil, fmt.Errorf("listen at %.100q: want a path in %s", path, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	kind := unix.SOCK_STREAM
	if u.GetSeqpacket() {
		kind = unix.SOCK_SEQPACKET
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", path, os.NewSyscallError("socket", err))
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // net.FileListener duplicates it
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, nil, fmt.Errorf("listen at %s: %w", path, os.NewSyscallError("bind", err))
	}
	remove := func() { _ = os.Remove(path) }
	err = errors.Join(os.Chown(path, int(u.GetUid()), int(u.GetGid())), unix.Chmod(path, u.GetMode()&0o7777), unix.Listen(fd, backlog))
	if err == nil {
		var l net.Listener
		if l, err = net.FileListener(file); err == nil {
			return l, remove, nil
		}
	}
	remove()
	return nil, nil, fmt.Errorf("listen at %s: %w", path, err)
}
