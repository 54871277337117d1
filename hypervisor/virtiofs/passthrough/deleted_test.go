package passthrough

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sweptFS is an FS whose sweeps the test makes, on a directory.
type sweptFS struct {
	*FS
	t   *testing.T
	dir string
}

func newSweptFS(t *testing.T) sweptFS {
	t.Helper()
	dir := t.TempDir()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	s := sweptFS{FS: newFS(t, root), t: t, dir: dir}
	s.nodes.sweeper.closed = true // no timer
	return s
}

func (s sweptFS) path(name string) string { return filepath.Join(s.dir, name) }

// known makes a file and returns its node, which has a descriptor in use.
func (s sweptFS) known(th *Thread, name string) *node {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(name), 0o600); err != nil {
		s.t.Error(err)
	}
	n := s.found(th, name)
	if _, errno := s.fd(th, n); errno != 0 {
		s.t.Errorf("open %s: %v", name, errno)
	}
	return n
}

// found returns the node that a lookup of a name finds.
func (s sweptFS) found(th *Thread, name string) *node {
	s.t.Helper()
	root, dfd, errno := s.FS.dir(th, rootID)
	if errno != 0 {
		s.t.Errorf("open the root: %v", errno)
		return nil
	}
	defer s.leave(root)
	if errno := statName(dfd, name, &th.stx); errno != 0 {
		s.t.Errorf("find %s: %v", name, errno)
		return nil
	}
	n, errno := s.intern(root, name, &th.stx, -1)
	if errno != 0 {
		s.t.Errorf("make the node of %s: %v", name, errno)
	}
	return n
}

// A sweep closes the idle descriptors of files that the host has deleted, and no
// others. A file that gets the inode's number next is another one.
func TestSweep(t *testing.T) {
	s := newSweptFS(t)
	onThread(t, func(th *Thread) {
		gone, used, linked, there := s.known(th, "gone"), s.known(th, "used"), s.known(th, "linked"), s.known(th, "there")
		if err := os.Link(s.path("linked"), s.path("other")); err != nil {
			t.Error(err)
		}
		for _, n := range []*node{gone, linked, there} {
			s.done(n)
		}
		for _, name := range []string{"gone", "used", "linked"} {
			if err := os.Remove(s.path(name)); err != nil {
				t.Error(err)
			}
		}
		s.nodes.sweep()
		if gone.slot >= 0 || used.slot < 0 || linked.slot < 0 || there.slot < 0 {
			t.Errorf("slots of a deleted file %d, of one in use %d, of one with another name %d, of one that is there %d", gone.slot, used.slot, linked.slot, there.slot)
		}
		if err := os.WriteFile(s.path("gone"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if anew := s.found(th, "gone"); anew == gone {
			t.Error("a file that was made anew is the deleted one")
		}
		if _, errno := s.fd(th, gone); errno != unix.ESTALE {
			t.Errorf("a descriptor of the deleted file: %v, want ESTALE", errno)
		}
		s.done(used)
		s.nodes.sweep()
		if used.slot >= 0 {
			t.Error("a deleted file that is no longer in use stays open")
		}
	})
}

// A file of two names is freed when the guest has removed one of them and the host the
// other, unless the guest has it open.
func TestSweepOfRemovedLink(t *testing.T) {
	newLinked(t, 2, func(l linked) {
		l.fs.nodes.sweeper.closed = true // no timer
		a, b := l.look(rootID, "a").id, l.look(rootID, "b").id
		gone, used := l.look(a, "0"), l.look(a, "1")
		l.usable(gone, "a file that is there")
		if _, errno := l.fs.fd(l.th, used); errno != 0 {
			t.Errorf("a file that is there: %v", errno)
		}
		for _, name := range []string{"0", "1"} {
			l.unlink(a, name, nil)
			l.removeOnHost(b, name)
		}
		l.fs.nodes.sweep()
		if gone.slot >= 0 || used.slot < 0 {
			t.Errorf("slots of a deleted file %d, of one in use %d", gone.slot, used.slot)
		}
		l.fs.done(used)
		l.fs.nodes.sweep()
		if used.slot >= 0 {
			t.Error("a deleted file that is no longer in use stays open")
		}
	})
}

// Sweeps become rare while the guest uses no files, and end when there is nothing to
// inspect.
func TestSweepsBecomeRare(t *testing.T) {
	s := newSweptFS(t)
	tb := &s.nodes
	tb.sweeper.closed = false
	tb.sweeper.timer = time.AfterFunc(time.Hour, func() {}) // the test sweeps
	pause := func() time.Duration {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		if !tb.sweeper.armed {
			return 0
		}
		return tb.sweeper.pause
	}
	onThread(t, func(th *Thread) {
		n := s.known(th, "f")
		s.done(n)
		for i, want := range []time.Duration{sweepSoon, sweepSoon * 2, sweepSoon * 4, sweepSoon * 8, sweepLate, sweepLate} {
			if got := pause(); got != want {
				t.Errorf("before sweep %d: %v, want %v", i, got, want)
			}
			tb.sweep()
		}
		if _, errno := s.fd(th, n); errno != 0 {
			t.Error(errno)
		}
		s.done(n)
		if got := pause(); got != sweepSoon {
			t.Errorf("after a use: %v, want %v", got, sweepSoon)
		}
		if err := os.Remove(s.path("f")); err != nil {
			t.Error(err)
		}
		tb.sweep()
		if got := pause(); got != 0 {
			t.Errorf("with nothing to inspect: %v, want none", got)
		}
	})
}

// However many descriptors there are, their inspection takes a small part of the time.
func TestSweepsCostLittle(t *testing.T) {
	for left, want := range map[int]time.Duration{0: sweepSoon, 20_000: sweepSoon, 100_000: 10 * time.Second, 1 << 20: sweepLate} {
		if got := (&sweeper{left: left}).soon(); got != want {
			t.Errorf("%d descriptors: %v, want %v", left, got, want)
		}
	}
}
