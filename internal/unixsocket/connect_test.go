package unixsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// server is a socket of that type with a backlog of one, at a path that is longer
// than an address may be.
func server(t *testing.T, kind int) *os.File {
	t.Helper()
	dir := t.TempDir()
	short, long := filepath.Join(dir, "s"), filepath.Join(dir, strings.Repeat("l", 200))
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: short}), unix.Listen(fd, 0), os.Rename(short, long)); err != nil {
		t.Fatal(err)
	}
	at, err := os.OpenFile(long, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at
}

func TestConnect(t *testing.T) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		at := server(t, kind)
		conn, err := Connect(t.Context(), at, kind)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		// The backlog is full now.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = Connect(ctx, at, kind)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a server that accepts nothing: %v", err)
		}
	}
}

func TestConnectRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	at, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	if _, err := Connect(t.Context(), at, unix.SOCK_SEQPACKET); !errors.Is(err, unix.EPROTOTYPE) {
		t.Errorf("another type: %v", err)
	}
	_ = l.Close()
	if _, err := Connect(t.Context(), at, unix.SOCK_STREAM); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
}
