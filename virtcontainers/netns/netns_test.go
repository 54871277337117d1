package netns_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
	"github.com/katabox/katabox/virtcontainers/netns"
)

// newNamespace makes a network namespace and opens it.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	path := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	ownthread.Go(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		made <- err
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ns, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// where returns the network namespace of the calling thread.
func where() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }

func TestDo(t *testing.T) {
	ns := newNamespace(t)
	home, err := where()
	if err != nil {
		t.Fatal(err)
	}
	errInside := errors.New("inside")
	for range 20 {
		var there string
		err := netns.Do(ns, func() (err error) {
			if there, err = where(); err != nil {
				return err
			}
			return errInside
		})
		if !errors.Is(err, errInside) || there == home {
			t.Fatalf("in %s, from %s: %v", there, home, err)
		}
	}
	if back, err := os.Readlink("/proc/self/ns/net"); err != nil || back != home {
		t.Errorf("the process is in %s, %v; it was in %s", back, err, home)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		is   error
		text string
	}{
		"/proc/self/ns/net": {netns.ErrHost, "host network requested"},
		"/proc/self/ns/uts": {errdefs.ErrInvalidArgument, "of another kind"},
		file:                {errdefs.ErrInvalidArgument, "it is not a namespace"},
		fifo:                {errdefs.ErrInvalidArgument, "it is not a namespace"},
		dir + "/gone":       {errdefs.ErrNotFound, "gone"},
	} {
		ns, err := netns.Open(path)
		if err == nil {
			_ = ns.Close()
		}
		if !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.text) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := netns.Open(dir + "/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is gone: %v, want also fs.ErrNotExist", err)
	}
	if !errdefs.IsInvalidArgument(netns.ErrHost) {
		t.Error("the refusal of the host's network has another kind")
	}
}
