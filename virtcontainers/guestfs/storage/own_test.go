package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// newOwnShare opens a share that this process serves.
func newOwnShare(t *testing.T) *Share {
	t.Helper()
	if unix.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	s, err := OpenShare(t.Context(), ShareOptions{ID: "pod", Scratch: t.TempDir(), Tag: "t", Cache: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A share that this process serves needs no daemon, and leaves nothing.
func TestOwnServer(t *testing.T) {
	s := newOwnShare(t)
	if s.PID() != 0 {
		t.Errorf("pid %d", s.PID())
	}
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{{Index: 0, Source: tree(t)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveContainer(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s, "c1")
	for range 2 {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-s.Done():
	default:
		t.Error("a closed share is still served")
	}
}

// A file system of the host that hangs holds up neither the end of the share nor
// what else waits for the share's thread.
func TestCloseWhileACallHangs(t *testing.T) {
	s := newOwnShare(t)
	running, release := make(chan struct{}), make(chan struct{})
	hung := make(chan error, 1)
	go func() {
		hung <- s.space.do(t.Context(), func() error {
			close(running)
			<-release
			return nil
		})
	}()
	<-running
	removed := make(chan error, 1)
	go func() { removed <- s.RemoveContainer(t.Context(), "c1") }()
	if err := s.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if err := <-hung; !errdefs.IsFailedPrecondition(err) {
		t.Errorf("the call that hangs: %v", err)
	}
	if err := <-removed; err != nil {
		t.Errorf("the call that waits: %v", err)
	}
	close(release)
}

// Nor does it hold up the start of a daemon that fails.
func TestDaemonsRoomWhileACallHangs(t *testing.T) {
	sp := newOwnShare(t).space
	running, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	go func() {
		_ = sp.do(t.Context(), func() error {
			close(running)
			<-release
			return nil
		})
	}()
	<-running
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := newDaemonRoom(ended, sp, "/share", "/bin/true")
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * closeWait):
		t.Error("it still waits for the call that hangs")
	}
}

// A file system whose server never answers can be put into the share, also
// read-only: only its users wait for it.
func TestBindOfAHungFileSystem(t *testing.T) {
	s := newOwnShare(t)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := unix.Mount("hung", dir, "fuse", 0, options); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	binds := []guestspec.Bind{{Index: 0, Source: dir, Recursive: true, Slave: true}, {Index: 1, Source: dir, ReadOnly: true}}
	if _, err := s.AddContainer(t.Context(), "c1", "", binds); err != nil {
		t.Error(err)
	}
	if err := s.RemoveContainer(t.Context(), "c1"); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s, "c1")
}

func TestPolicies(t *testing.T) {
	for _, test := range []struct {
		cache, where string
		keep, direct bool
		valid        time.Duration
	}{
		{"auto", "", false, false, time.Second},
		{"auto", "c1/rootfs", true, false, time.Second},
		{"auto", "c1/rootfs/mnt", false, false, time.Second},
		{"auto", "c1/mounts/0", false, false, time.Second},
		{"auto", "sandbox-mounts/rootfs", false, false, time.Second},
		{"always", "c1/mounts/0", true, false, 24 * time.Hour},
		{"always", "c1/rootfs", true, false, 24 * time.Hour},
		{"metadata", "c1/mounts/0", false, true, time.Second},
		{"metadata", "c1/rootfs", true, false, time.Second},
		{"never", "c1/rootfs", false, true, 0},
		{"metadata", "", false, true, time.Second},
		{"never", "", false, true, time.Second},
		{"always", "", false, false, time.Second},
	} {
		p := policyOf(test.cache)(test.where)
		if p.Keep != test.keep || p.Direct != test.direct {
			t.Errorf("%s %q: keep %v, direct %v", test.cache, test.where, p.Keep, p.Direct)
		}
		if p.Entries != test.valid || p.Attributes != test.valid || p.Absent > test.valid {
			t.Errorf("%s %q: valid for %v, %v, absent for %v; want %v", test.cache, test.where, p.Entries, p.Attributes, p.Absent, test.valid)
		}
	}
}
