package container

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenAt is a socket at a path that may be longer than an address.
func listenAt(t *testing.T, path string) net.Listener {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", short)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Rename(short, path); err != nil {
		t.Fatal(err)
	}
	return l
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// A socket is found by its path as the container sees it, and no path leads out
// of the container's root.
func TestDialSocket(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	listenAt(t, secret)
	long := "/" + strings.Repeat("d", 120) + "/app.sock"
	inside := listenAt(t, dir+long)
	link(t, long, dir+"/absolute")
	link(t, "./."+long, dir+"/relative")
	link(t, secret, dir+"/out")
	link(t, strings.Repeat("../", 40)+secret, dir+"/up")
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listenAt(t, dir+"/gone").Close()
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, path := range []string{long, "/absolute", "/relative", "/../.." + long} {
		conn, err := DialSocket(t.Context(), root, path, unix.SOCK_STREAM)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		far, err := inside.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Close(), far.Close()
	}
	for path, want := range map[string]error{
		secret: fs.ErrNotExist, "/out": fs.ErrNotExist, "/up": fs.ErrNotExist, "/../../../" + secret: fs.ErrNotExist,
		"/nowhere": fs.ErrNotExist, "/file/x": unix.ENOTDIR, "/gone": unix.ECONNREFUSED, "/file": nil, "/": nil,
	} {
		conn, err := DialSocket(t.Context(), root, path, unix.SOCK_STREAM)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%s: connected", path)
		} else if want != nil && !errors.Is(err, want) || want == nil && !strings.Contains(err.Error(), "is not a UNIX socket") {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// A socket is reached by its own type alone.
func TestDialSocketOfAType(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	kinds := map[string]int{"unix": unix.SOCK_STREAM, "unixpacket": unix.SOCK_SEQPACKET}
	for network := range kinds {
		l, err := net.Listen(network, filepath.Join(dir, network))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		for other, kind := range kinds {
			conn, err := DialSocket(t.Context(), root, "/"+network, kind)
			if err == nil {
				_ = conn.Close()
			}
			if network == other && err != nil || network != other && (!errors.Is(err, unix.EPROTOTYPE) || !strings.Contains(err.Error(), "of another type")) {
				t.Errorf("%s as %s: %v", network, other, err)
			}
		}
	}
}

// A link of /proc is not followed: /proc/PID/root of the agent leads to the
// guest's files.
func TestDialSocketFollowsNoLinkOfProc(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listenAt(t, path)
	root, err := initProcess{pid: os.Getpid(), fd: ownPidfd(t)}.openOwn("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		t.Skipf("needs root to open a process's root: %v", err)
	}
	defer root.Close()
	conn, err := DialSocket(t.Context(), root, path, unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := DialSocket(t.Context(), root, "/proc/self/root"+path, unix.SOCK_STREAM); !errors.Is(err, unix.ELOOP) {
		t.Errorf("by /proc: %v", err)
	}
}

// A server that accepts nothing is waited for until the context ends.
func TestDialSocketOfAFullServer(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: dir + "/full"}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	conn, err := DialSocket(t.Context(), root, "/full", unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := DialSocket(ctx, root, "/full", unix.SOCK_STREAM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func ownPidfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { _ = f.Close() })
	return f
}
