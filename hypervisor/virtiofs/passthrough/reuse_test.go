package passthrough

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// reusedNode returns a node of a regular file whose inode number and name a FIFO
// has now. It is as if the file was removed and mknod got its number.
func reusedNode(t *testing.T, fs *FS, dir string) *node {
	t.Helper()
	fifo := filepath.Join(dir, "f")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	var stx unix.Statx_t
	if errno := statName(unix.AT_FDCWD, fifo, &stx); errno != 0 {
		t.Fatal(errno)
	}
	stx.Mode = unix.S_IFREG | 0o600
	root, errno := fs.nodes.get(rootID)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer fs.nodes.put(root)
	n, errno := fs.intern(root, "f", &stx, -1)
	if errno != 0 {
		t.Fatal(errno)
	}
	return n
}

// A file that got the inode number of another kind of file is not taken for it:
// the guest would have the host open FIFOs and devices.
func TestReusedInodeOfAnotherKind(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fs := newFS(t, root)
	n := reusedNode(t, fs, dir)
	onThread(t, func(th *Thread) {
		if _, errno := fs.fd(th, n); errno != unix.ESTALE {
			t.Errorf("a descriptor of a FIFO as that of a regular file: %v, want ESTALE", errno)
		}
		if errno := fs.stat(th, n); errno != unix.ESTALE {
			t.Errorf("attributes of a FIFO as those of a regular file: %v, want ESTALE", errno)
		}
		top, dfd, errno := fs.dir(th, rootID)
		if errno != 0 {
			t.Errorf("open the root: %v", errno)
			return
		}
		defer fs.leave(top)
		if b := fs.bindDescriptor(th, top, dfd, "f"); b.node != nil {
			t.Error("the FIFO's descriptor becomes that of a regular file when its name is removed")
			fs.leave(b.node)
		}
	})
}

// What is not a regular file is closed again, should it ever be opened.
func TestOpenRegular(t *testing.T) {
	onThread(t, func(*Thread) {
		null, err := unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(null)
		if fd, errno := openRegular(null, unix.O_RDONLY|unix.O_CLOEXEC); errno != unix.EACCES || fd >= 0 {
			t.Errorf("open a device: descriptor %d, %v; want EACCES", fd, errno)
		}
	})
}

// A link that got the inode number of another one, which the host has removed, is not
// taken for it: the guest caches where a link leads for as long as it knows the node.
func TestReusedInodeOfLink(t *testing.T) {
	for name, replace := range map[string]func(was *unix.Statx_t){
		"later":           func(was *unix.Statx_t) { was.Mtime.Sec-- },
		"in one second":   func(was *unix.Statx_t) { was.Mtime.Nsec ^= 1 },
		"of another size": func(was *unix.Statx_t) { was.Size++ },
	} {
		t.Run(name, func(t *testing.T) {
			newLinked(t, 0, func(l linked) {
				root, dfd, errno := l.fs.dir(l.th, rootID)
				if errno != 0 {
					panic(errno)
				}
				defer l.fs.leave(root)
				if err := unix.Symlinkat("v2", dfd, "current"); err != nil {
					panic(err)
				}
				var was, is unix.Statx_t
				if errno := statName(dfd, "current", &is); errno != 0 {
					panic(errno)
				}
				was = is
				replace(&was)
				old := l.internAs(root, "current", &was)
				if l.internAs(root, "current", &was) != old {
					t.Error("a link is another one when it is looked up again")
				}
				if old.is(&is) {
					t.Error("the new link is the old one")
				}
				if l.internAs(root, "current", &is) == old {
					t.Error("a lookup of the new link finds the old one")
				}
			})
		})
	}
}

// internAs is a lookup of a name whose attributes the test says.
func (l linked) internAs(dir *node, name string, stx *unix.Statx_t) *node {
	n, errno := l.fs.intern(dir, name, stx, -1)
	if errno != 0 {
		panic(errno)
	}
	return n
}
