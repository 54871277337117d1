package reverse

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/hungfs"
	"github.com/katabox/katabox/internal/intime"
)

// server is a server on a UNIX socket on the host.
type server struct {
	path string
	l    net.Listener
}

func newServer(t *testing.T, network, path string) *server {
	t.Helper()
	l, err := net.Listen(network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return &server{path, l}
}

// accept accepts the next connection and returns its peer's credentials.
func (s *server) accept(t *testing.T) (*net.UnixConn, *unix.Ucred) {
	t.Helper()
	_ = s.l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := s.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peer *unix.Ucred
	_ = raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn), peer
}

// deepDir returns a directory that every user may enter, with a path that is
// longer than a socket's address.
func deepDir(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/tmp", "kbs") //nolint:usetesting // every user may enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	dir := filepath.Join(top, strings.Repeat("d", 120))
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(top, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listenSocket starts to forward a socket and returns the guest's end.
func (h *hostile) listenSocket(s Socket) (*SocketListener, *net.UnixConn) {
	h.t.Helper()
	l, err := ListenSocket(h.t.Context(), h.open, s, &api.UnixSocket{Path: "/x"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			h.t.Error(err)
		}
	})
	return l, h.next().conn
}

// The server sees the given user, and this process keeps its ids.
func TestSocketUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	dir := deepDir(t)
	short := filepath.Join(t.TempDir(), "s")
	if err := os.Symlink(dir, short); err != nil {
		t.Fatal(err)
	}
	srv := newServer(t, "unix", short+"/a")
	for _, as := range []User{{}, {UID: 1234, GID: 2345, Groups: []uint32{7, 9}}, {UID: 5}} {
		for _, byPath := range []bool{false, true} {
			h := newGuest(t)
			_, control := h.listenSocket(Socket{Path: filepath.Join(dir, "a"), ByPath: byPath, As: as})
			announce(t, control, 1)
			near := h.next().conn
			conn, peer := srv.accept(t)
			if peer.Uid != as.UID || peer.Gid != as.GID || int(peer.Pid) != os.Getpid() {
				t.Errorf("the server sees %+v, want %+v", peer, as)
			}
			_, _ = io.WriteString(near, "question")
			_ = near.CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || string(got) != "question" {
				t.Errorf("%q, %v", got, err)
			}
		}
	}
	if os.Geteuid() != 0 || os.Getegid() != 0 {
		t.Errorf("this process is %d:%d", os.Geteuid(), os.Getegid())
	}
}

// A socket that the user may not use is not connected to, though root may.
func TestSocketPermissionIsTheUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	srv := newServer(t, "unix", filepath.Join(t.TempDir(), "a"))
	if err := errors.Join(os.Chown(srv.path, 0, 9), os.Chmod(srv.path, 0o660)); err != nil {
		t.Fatal(err)
	}
	pinned, err := openPath(srv.path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	for _, test := range []struct {
		as      User
		allowed bool
	}{
		{User{UID: 1234, GID: 2345}, false},
		{User{UID: 1234, GID: 0}, false},
		{User{UID: 1234, GID: 2345, Groups: []uint32{8, 9}}, true},
		{User{UID: 1234, GID: 9}, true},
	} {
		l := SocketListener{pinned: pinned, threads: make(chan struct{}, 1)}
		conn, err := l.connect(t.Context(), Socket{Path: srv.path, As: test.as})
		if test.allowed != (err == nil) || err != nil && !errors.Is(err, unix.EACCES) {
			t.Errorf("%+v: %v, want allowed %v", test.as, err, test.allowed)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

// A pinned socket leads to the original server; a socket by path to the current
// one.
func TestSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	first := newServer(t, "unix", path)
	pinned, byPath := newGuest(t), newGuest(t)
	_, old := pinned.listenSocket(Socket{Path: path})
	_, current := byPath.listenSocket(Socket{Path: path, ByPath: true})
	_ = first.l.Close()
	second := newServer(t, "unix", path)
	announce(t, old, 1)
	if n, err := pinned.next().conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the old socket: %d bytes, %v", n, err)
	}
	announce(t, current, 1)
	byPath.next()
	second.accept(t)
}

func TestSeqpacketSocket(t *testing.T) {
	srv := newServer(t, "unixpacket", filepath.Join(t.TempDir(), "a"))
	h := newGuest(t)
	_, control := h.listenSocket(Socket{Path: srv.path, Seqpacket: true})
	announce(t, control, 1)
	near := h.next().conn
	conn, _ := srv.accept(t)
	_, _ = io.WriteString(near, "\x00\x00\x00\x02ab\x00\x00\x00\x01c")
	buf := make([]byte, 10)
	for _, want := range []string{"ab", "c"} {
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("got %q, %v, want %q", buf[:n], err, want)
		}
	}
	// An invalid length ends the connection.
	_, _ = io.WriteString(near, "\xff\xff\xff\xff")
	if n, err := conn.Read(buf); n != 0 || err == nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

func TestNoSocket(t *testing.T) {
	h := newGuest(t)
	if _, err := ListenSocket(t.Context(), h.open, Socket{Path: "/nowhere/at/all"}, &api.UnixSocket{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("listened: %v", err)
	}
	if len(h.opened) != 0 {
		t.Error("the guest was asked")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	full := Socket{Path: fullServer(t), ByPath: true}
	l := SocketListener{threads: make(chan struct{}, 1)}
	if _, err := l.connect(ctx, full); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that accepts nothing: %v", err)
	}
}

// The end of a listener does not wait for a connection to a socket on a file system
// that hangs, nor does the call that makes a listener for such a socket.
func TestSocketHangs(t *testing.T) {
	hung, release := hungfs.Mount(t)
	defer release()
	h := newGuest(t)
	dir := t.TempDir()
	l, control := h.listenSocket(Socket{Path: filepath.Join(dir, "s"), ByPath: true})
	if err := unix.Mount(hung, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	announce(t, control, 1)
	h.next()
	soon(t, "the listener's end", func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, byPath := range []bool{false, true} {
		soon(t, "the end of a call that was given up", func() {
			_, err := ListenSocket(ctx, h.open, Socket{Path: filepath.Join(hung, "s"), ByPath: byPath}, &api.UnixSocket{})
			if !errors.Is(err, intime.ErrUnanswered) {
				t.Error(err)
			}
		})
	}
}

// soon fails the test if f does not end in time.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
}

// A thread that hangs is bounded: no other takes its place before it ends.
func TestThreadsOfAListener(t *testing.T) {
	hung, release := hungfs.Mount(t)
	defer release()
	l := SocketListener{threads: make(chan struct{}, 2)}
	s := Socket{Path: filepath.Join(hung, "s"), ByPath: true}
	for i, want := range []string{"it has not answered", "it has not answered", "2 connections before have not ended"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := l.connect(ctx, s)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("connection %d: %v, want %q in it", i, err, want)
		}
	}
	release()
	for range cap(l.threads) {
		soon(t, "a thread's end", func() { l.threads <- struct{}{} })
	}
}

// fullServer returns a socket whose backlog is full.
func fullServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "full")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return path
}
