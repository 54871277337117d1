package virtiofs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// An overlay whose layers are on several file systems, as those of lazily pulled images
// are, has an inode number once for each. The guest, for which it is one file system,
// must not take such files for one with two names: tar and cp would.
func TestInodesOfLayers(t *testing.T) {
	dir := overlayOfTwo(t)
	_, front := serveDir(t, dir, passthrough.Rootfs)
	c := rawClientOf(t, front).begin()
	first, again := c.mustLookup(1, "file0").Attr, c.mustLookup(1, "link0").Attr
	other := c.mustLookup(1, "file1").Attr
	if first.Nlink != 2 || other.Nlink != 2 {
		t.Fatalf("links: %d and %d, want 2", first.Nlink, other.Nlink)
	}
	if hostInode(t, filepath.Join(dir, "file0")) != hostInode(t, filepath.Join(dir, "file1")) {
		t.Skip("before Linux 5.9 two tmpfs do not number alike")
	}
	if first.Ino != again.Ino {
		t.Errorf("a file's two names have inodes %d and %d", first.Ino, again.Ino)
	}
	if first.Ino == other.Ino {
		t.Errorf("two files have inode %d", first.Ino)
	}
	if a := ask[fuse.AttrOut](c, wire.Getattr, c.mustLookup(1, "file1").NodeId, &fuse.GetAttrIn{}); a.Ino != other.Ino {
		t.Errorf("the same file has inode %d, then %d", other.Ino, a.Ino)
	}
}

// overlayOfTwo mounts an overlay of two file systems that number alike: fileN and linkN are
// one file of the Nth.
func overlayOfTwo(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	base := t.TempDir()
	var layers [2]string
	for i := range layers {
		layers[i] = filepath.Join(base, fmt.Sprint("layer", i))
		mountAt(t, "tmpfs", layers[i], "")
		file := filepath.Join(layers[i], fmt.Sprint("file", i))
		if err := os.WriteFile(file, []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(file, filepath.Join(layers[i], fmt.Sprint("link", i))); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(base, "merged")
	mountAt(t, "overlay", merged, "lowerdir="+layers[0]+":"+layers[1])
	return merged
}

func mountAt(t *testing.T, kind, dir, data string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(kind, dir, kind, 0, data); err != nil {
		t.Skipf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func hostInode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
