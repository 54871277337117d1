package passthrough

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
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
