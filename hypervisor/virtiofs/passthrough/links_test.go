package passthrough

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// linked is a share whose guest knows files by two names, as after cp -al a b. Its
// methods run on a serving thread, and panic when they cannot go on.
type linked struct {
	t  *testing.T
	fs *FS
	th *Thread
}

// look looks up a name in a directory of the share, and returns the node.
func (l linked) look(dir uint64, name string) *node {
	d, dfd, errno := l.fs.dir(l.th, dir)
	if errno != 0 {
		panic(errno)
	}
	defer l.fs.leave(d)
	var out fuse.EntryOut
	if errno := l.fs.entry(l.th, d, dfd, name, &out); errno != 0 {
		panic(fmt.Sprint(name, errno))
	}
	return l.fs.nodes.byID[out.NodeId-1]
}

// unlink removes a name as the guest's request does. between is called before.
func (l linked) unlink(dir uint64, name string, between func(dfd int) error) {
	d, dfd, errno := l.fs.dir(l.th, dir)
	if errno != 0 {
		panic(errno)
	}
	defer l.fs.leave(d)
	b := l.fs.bindDescriptor(l.th, d, dfd, name)
	if between != nil {
		if err := between(dfd); err != nil {
			panic(err)
		}
	}
	if err := unix.Unlinkat(dfd, name, 0); err != nil {
		panic(err)
	}
	l.fs.unname(b, d, name, true)
}

// removeOnHost removes a name without the guest's knowledge.
func (l linked) removeOnHost(dir uint64, name string) {
	d, dfd, errno := l.fs.dir(l.th, dir)
	if errno != 0 {
		panic(errno)
	}
	defer l.fs.leave(d)
	if err := unix.Unlinkat(dfd, name, 0); err != nil {
		panic(err)
	}
}

func (l linked) usable(n *node, what string) {
	l.t.Helper()
	if _, errno := l.fs.fd(l.th, n); errno != 0 {
		l.t.Errorf("%s: %v", what, errno)
		return
	}
	l.fs.done(n)
}

func newLinked(t *testing.T, files int, test func(l linked)) {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range files {
		from := filepath.Join(dir, "a", fmt.Sprint(i))
		if err := os.WriteFile(from, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(from, filepath.Join(dir, "b", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fs := newFS(t, root)
	onThread(t, func(th *Thread) { test(linked{t, fs, th}) })
}

// To remove one name of many files of two names pins no descriptors, so that
// files that lose their only name keep theirs.
func TestRemovedLinks(t *testing.T) {
	const files = 50 // more than the descriptors that may be pinned
	newLinked(t, files, func(l linked) {
		a, b := l.look(rootID, "a").id, l.look(rootID, "b").id
		for i := range files {
			name := fmt.Sprint(i)
			if l.look(a, name) != l.look(b, name) {
				t.Errorf("%s is two files", name)
			}
			l.unlink(b, name, nil)
		}
		if pinned := l.fs.nodes.slots.pinned; pinned != 1 {
			t.Errorf("%d descriptors are pinned, want the root's", pinned)
		}
		l.usable(l.look(a, "0"), "a file by its other name")
		n := l.look(a, "1")
		l.unlink(a, "1", nil)
		if n.slot < 0 || !l.fs.nodes.slots.all[n.slot].pinned {
			t.Error("a file that has lost its last name has no descriptor")
		}
		l.usable(n, "a file without a name")
	})
}

// A pipe that the guest has open is found when the name by which it was opened is
// gone and its descriptor is needed for another file: there is no handle of it.
func TestRemovedLinkOfPipe(t *testing.T) {
	newLinked(t, 50, func(l linked) {
		dir, dfd, errno := l.fs.dir(l.th, rootID)
		if errno != 0 {
			panic(errno)
		}
		defer l.fs.leave(dir)
		if err := errors.Join(unix.Mkfifoat(dfd, "pipe", 0o600), unix.Linkat(dfd, "pipe", dfd, "other", 0)); err != nil {
			panic(err)
		}
		pipe := l.look(rootID, "pipe")
		l.unlink(rootID, "pipe", nil)
		a := l.look(rootID, "a").id
		for i := range 50 {
			l.usable(l.look(a, fmt.Sprint(i)), "another file")
		}
		l.usable(pipe, "the pipe")
	})
}

// A file that has a name again needs no descriptor any more.
func TestNamedAgain(t *testing.T) {
	newLinked(t, 1, func(l linked) {
		a, b := l.look(rootID, "a").id, l.look(rootID, "b").id
		l.unlink(b, "0", nil)
		n := l.look(a, "0")
		// The host makes another name at the last moment.
		l.unlink(a, "0", func(dfd int) error { return unix.Linkat(dfd, "0", dfd, "again", 0) })
		if pinned := l.fs.nodes.slots.pinned; pinned != 2 {
			t.Errorf("%d descriptors are pinned, want the root's and the file's", pinned)
		}
		if l.look(a, "again") != n {
			t.Error("the file is another one by its other name")
		}
		if pinned := l.fs.nodes.slots.pinned; pinned != 1 {
			t.Errorf("%d descriptors are pinned, want the root's", pinned)
		}
		l.usable(n, "a file that has a name again")
	})
}

// tmpfile makes a file without a name as the guest's request does, and returns it
// and its handle.
func (l linked) tmpfile() (*node, uint64) {
	d, dfd, errno := l.fs.dir(l.th, rootID)
	if errno != 0 {
		panic(errno)
	}
	defer l.fs.leave(d)
	fd, err := unix.Open(procName(dfd), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		panic(err)
	}
	if errno := l.fs.keepNameless(l.th, wire.NewRequest(), d, fd, unix.O_RDWR); errno != 0 {
		panic(errno)
	}
	for i, h := range l.fs.handles.all {
		if h != nil && h.fd == fd {
			return h.node, uint64(i + 1)
		}
	}
	panic("no handle")
}

// A guest that makes files without names, closes them and never forgets them has no
// more descriptors of the host's than for files that it removes.
func TestFilesWithoutNames(t *testing.T) {
	newLinked(t, 0, func(l linked) {
		const files = 50 // more than the descriptors that may be pinned
		for range files {
			n, id := l.tmpfile()
			l.usable(n, "a file without a name")
			h, fd := l.fs.handles.take(id)
			_ = unix.Close(fd)
			l.fs.nodes.put(h.node)
		}
		held := 0
		for _, s := range l.fs.nodes.slots.all {
			if s.node != nil {
				held++
			}
		}
		if most := 2 * l.fs.nodes.slots.limit; l.fs.nodes.slots.pinned > l.fs.nodes.slots.limit || held > most {
			t.Errorf("%d descriptors are pinned, %d kept; want at most %d and %d", l.fs.nodes.slots.pinned, held, l.fs.nodes.slots.limit, most)
		}
		n, _ := l.tmpfile()
		l.usable(n, "a file without a name, which is open")
		_, dfd, _ := l.fs.dir(l.th, rootID)
		fd, errno := l.fs.fd(l.th, n)
		if errno != 0 {
			panic(errno)
		}
		if err := unix.Linkat(unix.AT_FDCWD, procName(fd), dfd, "named", unix.AT_SYMLINK_FOLLOW); err != nil {
			t.Errorf("give it a name: %v", err)
		}
	})
}
