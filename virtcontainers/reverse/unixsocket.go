package reverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/internal/ownthread"
	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/internal/unixsocket"
)

// User is the user that the host's server sees as its peer (unix(7),
// SO_PEERCRED) and whose permissions apply.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Socket is a UNIX socket on the host.
type Socket struct {
	Path string
	// ByPath looks up the path for each connection; its links are resolved once, now.
	// Otherwise connections go to the socket that is at the path now, as with a bind
	// mount.
	ByPath    bool
	Seqpacket bool
	// As is the user of every connection.
	As User
}

// SocketListener forwards a UNIX socket.
type SocketListener struct {
	*Listener
	pinned *os.File // nil for a socket by path
	// threads holds one element for each thread that connects. One that hangs with a
	// file system of the host stays there after its connection was given up.
	threads chan struct{}
}

// ListenSocket makes the UNIX socket at in the guest, and forwards its
// connections to s. ctx bounds the call; the listener lives until Close.
func ListenSocket(ctx context.Context, open Opener, s Socket, at *api.UnixSocket) (*SocketListener, error) {
	l := &SocketListener{threads: make(chan struct{}, maxConnections)}
	var err error
	if s.ByPath {
		var resolved string
		if resolved, err = intime.Call(ctx, func() (string, error) { return resolve(s.Path) }, nil); err == nil {
			s.Path = resolved
		}
	} else {
		l.pinned, err = intime.Call(ctx, func() (*os.File, error) { return openPath(s.Path, 0) }, func(f *os.File) { _ = f.Close() })
	}
	if err != nil {
		return nil, fmt.Errorf("forward UNIX socket %s: %w", s.Path, err)
	}
	l.Listener, err = Listen(ctx, open, &api.ReverseListen{Place: &api.ReverseListen_Unix{Unix: at}}, func(ctx context.Context) (relay.HalfCloser, error) {
		conn, err := l.connect(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("connect to UNIX socket %s: %w", s.Path, err)
		}
		if s.Seqpacket {
			return relay.Packets(conn), nil
		}
		return conn, nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forward UNIX socket %s: %w", s.Path, err), l.unpin())
	}
	return l, nil
}

// Close stops listening, ends every connection, and waits for them. It may be
// called again.
func (l *SocketListener) Close() error { return errors.Join(l.Listener.Close(), l.unpin()) }

func (l *SocketListener) unpin() error {
	if l.pinned == nil {
		return nil
	}
	if err := l.pinned.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// connect connects as the user, on a thread that ends afterwards. It does not wait for
// the thread after ctx: the socket's file system may hang.
func (l *SocketListener) connect(ctx context.Context, s Socket) (*net.UnixConn, error) {
	select {
	case l.threads <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d connections before have not ended: %w", cap(l.threads), context.Cause(ctx))
	}
	pinned, err := duplicate(l.pinned) // the thread may outlive l
	if err != nil {
		<-l.threads
		return nil, err
	}
	type result struct {
		conn *net.UnixConn
		err  error
	}
	done := make(chan result)
	ownthread.Go(func() {
		defer func() { <-l.threads }()
		conn, err := s.connectHere(ctx, pinned)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done(): // it was given up
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("it has not answered: %w", context.Cause(ctx))
	}
}

// duplicate returns a descriptor of the same file; nil for nil.
func duplicate(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, nil //nolint:nilnil // none
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// connectHere connects on the calling thread. It closes at, which is nil for a socket
// by path: then the path has no links (resolve), and a link in it is refused. A guest
// that may write to a directory of the path would put a link there, and root's
// connections would go to any socket of the host.
func (s *Socket) connectHere(ctx context.Context, at *os.File) (*net.UnixConn, error) {
	if at != nil {
		defer at.Close()
	}
	if err := s.As.become(); err != nil {
		return nil, err
	}
	if at == nil {
		found, err := openPath(s.Path, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return nil, err
		}
		defer found.Close()
		at = found
	}
	kind := unix.SOCK_STREAM
	if s.Seqpacket {
		kind = unix.SOCK_SEQPACKET
	}
	return unixsocket.Connect(ctx, at, kind)
}

// become gives only the calling thread the user's effective ids: package unix's
// functions would change the whole process. The real ids stay root's, so that
// the user's processes may not signal or trace the thread (kill(2), ptrace(2)).
// As a side effect the kernel makes the process undumpable (proc(5),
// suid_dumpable), which does no harm. For root, as which this process runs, it
// does nothing.
func (u User) become() error {
	if u.UID == 0 && u.GID == 0 && len(u.Groups) == 0 {
		return nil
	}
	if err := setgroups(append([]uint32{u.GID}, u.Groups...)); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.GID), keep); errno != 0 {
		return os.NewSyscallError("setresgid", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.UID), keep); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}
