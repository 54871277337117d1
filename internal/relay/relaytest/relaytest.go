// Package relaytest has what the tests of relays share: connections over UNIX sockets,
// which end with the test. Tests only.
package relaytest

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Pair returns both ends of a connection. Reading and writing at b ends after timeout.
func Pair(t testing.TB, timeout time.Duration) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "pair"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b = Connect(t, l.Addr().String(), timeout)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn), b
}

// Connect connects to a socket. Reading and writing end after timeout.
func Connect(t testing.TB, path string, timeout time.Duration) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}

// WantAll checks all that comes until the end.
func WantAll(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Errorf("read %d bytes %.40q, %v, want %d bytes %.40q", len(got), got, err, len(want), want)
	}
}
