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

// Files that are mounted one by one, as Kubernetes' subPath and "-v /a/file:/file" do, are
// all in the file system of the directory below which they are mounted. In the guest two
// of different file systems have different numbers, two mounts of one file have the same.
func TestInodesOfFileMounts(t *testing.T) {
	share, sources := t.TempDir(), t.TempDir()
	files := filesOfTmpfs(t, sources, 3)
	volume := filepath.Join(share, "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, volume)
	for name, source := range map[string]string{
		"a": files[0], "a-again": files[0], "b": files[1], "c": files[2], "volume/a": files[0], "volume/a-again": files[0], "volume/b": files[1],
	} {
		bindFile(t, source, filepath.Join(share, name))
	}
	if hostInode(t, files[0]) != hostInode(t, files[1]) {
		t.Skip("before Linux 5.9 two tmpfs do not number alike")
	}
	_, front := serveDir(t, share, passthrough.Rootfs)
	c := rawClientOf(t, front).begin()
	for at, dir := range map[string]uint64{"the share": 1, "a volume": c.mustLookup(1, "volume").NodeId} {
		a, again, b := c.mustLookup(dir, "a"), c.mustLookup(dir, "a-again"), c.mustLookup(dir, "b")
		if a.Ino != again.Ino {
			t.Errorf("in %s a file that is mounted twice has inodes %d and %d", at, a.Ino, again.Ino)
		}
		if a.Ino == b.Ino {
			t.Errorf("in %s two files have inode %d", at, a.Ino)
		}
		if got := ask[fuse.AttrOut](c, wire.Getattr, b.NodeId, &fuse.GetAttrIn{}); got.Ino != b.Ino {
			t.Errorf("in %s the same file has inode %d, then %d", at, b.Ino, got.Ino)
		}
	}
	if a := c.mustLookup(1, "a").Ino; a != hostInode(t, files[0]) {
		t.Errorf("the first of the share's files has inode %d, want the host's, %d", a, hostInode(t, files[0]))
	}
}

// Mounted files keep their numbers in a guest that is restored, in whatever order they are
// found.
func TestStateKeepsInodesOfFileMounts(t *testing.T) {
	share := t.TempDir()
	names := []string{"a", "b", "c"}
	for i, source := range filesOfTmpfs(t, t.TempDir(), len(names)) {
		bindFile(t, source, filepath.Join(share, names[i]))
	}
	m := newMachine(t, share)
	m.boot()
	before := map[string]uint64{}
	for _, name := range names {
		before[name] = m.mustLookup(1, name).Ino
	}
	m.open(m.mustLookup(1, "b").NodeId, unix.O_RDONLY) // found first
	r := newMachine(t, share)
	if err := r.load(m.mustSave()); err != nil {
		t.Fatal(err)
	}
	r.resume()
	for _, name := range names {
		if got := r.mustLookup(1, name).Ino; got != before[name] {
			t.Errorf("file %s had inode %d, and has %d", name, before[name], got)
		}
	}
}

// filesOfTmpfs makes files that are each the first one of a tmpfs.
func filesOfTmpfs(t *testing.T, dir string, count int) (paths []string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	for i := range count {
		at := filepath.Join(dir, fmt.Sprint(i))
		mountAt(t, "tmpfs", at, "")
		paths = append(paths, filepath.Join(at, "file"))
		if err := os.WriteFile(paths[i], []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// bindFile mounts a file on a new one, until the test ends.
func bindFile(t *testing.T, source, at string) {
	t.Helper()
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
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
