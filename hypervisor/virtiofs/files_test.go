package virtiofs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// A guest gets the modes of fallocate that Linux's client sends, whatever the host's file
// system can do (docs/compat.md).
func TestFallocateModes(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be a tmpfs, which refuses them too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := newClient(t, dir)
	f := c.create(1, "file", unix.O_RDWR, 0o600)
	ask[struct{}](c, wire.Fallocate, f.NodeId, &fuse.FallocateIn{Fh: f.Fh, Length: 4 << 20})
	for mode, want := range map[uint32]unix.Errno{
		unix.FALLOC_FL_KEEP_SIZE: 0, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE: 0,
		unix.FALLOC_FL_COLLAPSE_RANGE: unix.EOPNOTSUPP, unix.FALLOC_FL_INSERT_RANGE: unix.EOPNOTSUPP,
		unix.FALLOC_FL_UNSHARE_RANGE: unix.EOPNOTSUPP, 1 << 31: unix.EOPNOTSUPP,
	} {
		if errno, _ := call(c, wire.Fallocate, f.NodeId, &fuse.FallocateIn{Fh: f.Fh, Length: 1 << 20, Mode: mode}); errno != want {
			t.Errorf("mode %#x: %v, want %v", mode, errno, want)
		}
	}
	if stat, err := os.Stat(filepath.Join(dir, "file")); err != nil || stat.Size() != 4<<20 {
		t.Errorf("the file: %v, %v", stat, err)
	}
}

func TestCreateWriteRead(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	c.uid, c.gid = 1000, 2000
	f := c.create(1, "file", unix.O_RDWR, 0o640)
	if n := c.write(f.Fh, 3, "hello"); n != 5 {
		t.Errorf("wrote %d", n)
	}
	if got := c.read(f.Fh, 0, 4096); got != "\x00\x00\x00hello" {
		t.Errorf("read %q", got)
	}
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil || string(got) != "\x00\x00\x00hello" {
		t.Errorf("the host has %q, %v", got, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "file"), &st); err != nil || st.Uid != 1000 || st.Gid != 2000 || st.Mode&0o7777 != 0o640 {
		t.Errorf("owner %d:%d, mode %o, %v", st.Uid, st.Gid, st.Mode, err)
	}
	// An append goes to the end of the file, whatever offset the guest names.
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("0123456789"), 0); err != nil {
		t.Fatal(err)
	}
	ask[fuse.WriteOut](c, wire.Write, 0, &fuse.WriteIn{Fh: f.Fh, Offset: 8, Size: 3, Flags: unix.O_APPEND}, []byte("end"))
	if got := c.read(f.Fh, 0, 4096); got != "0123456789end" {
		t.Errorf("after an append: %q", got)
	}
	if errno, _ := call(c, wire.Release, f.NodeId, &fuse.ReleaseIn{Fh: f.Fh}); errno != 0 {
		t.Errorf("release: %v", errno)
	}
	if errno, _ := call(c, wire.Read, 0, &fuse.ReadIn{Fh: f.Fh, Size: 1}); errno != unix.EBADF {
		t.Errorf("read after release: %v", errno)
	}
}

// A name is one component, and never leads out of its directory.
func TestNames(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "canary"), []byte("tweet"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	for _, n := range []string{"", ".", "..", "a/b", "/", "link/canary", "../" + filepath.Base(outside)} {
		if _, errno := c.lookup(1, n); errno != unix.EINVAL {
			t.Errorf("lookup %q: %v", n, errno)
		}
		errno, _ := call(c, wire.Create, 1, &fuse.CreateIn{Flags: unix.O_RDWR, Mode: 0o600}, name(n))
		if errno != unix.EINVAL {
			t.Errorf("create %q: %v", n, errno)
		}
	}
	if errno, _ := call(c, wire.Lookup, 1, &fuse.InHeader{}, []byte("no end")); errno != unix.EINVAL {
		t.Errorf("lookup of a name without an end: %v", errno)
	}
	link := c.mustLookup(1, "link")
	if _, errno := c.lookup(link.NodeId, "canary"); errno != unix.ENOTDIR {
		t.Errorf("lookup in a link: %v", errno)
	}
	if errno, _ := call(c, wire.Open, link.NodeId, &fuse.OpenIn{}); errno != unix.EACCES {
		t.Errorf("open a link: %v", errno)
	}
	// Nor by a race: here it was a directory when it was looked up.
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := c.mustLookup(1, "d")
	if err := os.Remove(filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if _, errno := c.lookup(d.NodeId, "canary"); errno == 0 {
		t.Error("a directory that became a link leads out")
	}
}

// Devices and FIFOs can be made and inspected, but are never opened: opening a
// FIFO would hang.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	for n, mode := range map[string]uint32{"fifo": unix.S_IFIFO | 0o600, "whiteout": unix.S_IFCHR, "null": unix.S_IFCHR | 0o666, "socket": unix.S_IFSOCK | 0o600} {
		rdev := uint32(0)
		if n == "null" {
			rdev = 1<<8 | 3
		}
		e := ask[fuse.EntryOut](c, wire.Mknod, 1, &fuse.MknodIn{Mode: mode, Rdev: rdev}, name(n))
		if e.Mode != mode || e.Rdev != rdev {
			t.Errorf("%s: mode %o, device %#x", n, e.Mode, e.Rdev)
		}
		if errno, _ := call(c, wire.Open, e.NodeId, &fuse.OpenIn{Flags: unix.O_RDONLY}); errno != unix.EACCES {
			t.Errorf("open %s: %v", n, errno)
		}
		set := &fuse.SetAttrIn{}
		set.Valid, set.Mode = fuse.FATTR_MODE, 0o640
		if got := ask[fuse.AttrOut](c, wire.Setattr, e.NodeId, set); got.Mode&0o7777 != 0o640 {
			t.Errorf("chmod %s: %o", n, got.Mode)
		}
	}
}

// A file without a name exists as long as the guest knows it.
func TestUnlinkedFile(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	f := c.create(1, "gone", unix.O_RDWR, 0o600)
	d := ask[fuse.EntryOut](c, wire.Mkdir, 1, &fuse.MkdirIn{Mode: 0o700}, name("d"))
	ask[struct{}](c, wire.Unlink, 1, &fuse.InHeader{}, name("gone"))
	ask[struct{}](c, wire.Rmdir, 1, &fuse.InHeader{}, name("d"))
	c.write(f.Fh, 0, "still here")
	attr := ask[fuse.AttrOut](c, wire.Getattr, f.NodeId, &fuse.GetAttrIn{})
	if attr.Nlink != 0 || attr.Size != 10 {
		t.Errorf("%d links, %d bytes", attr.Nlink, attr.Size)
	}
	if attr := ask[fuse.AttrOut](c, wire.Getattr, d.NodeId, &fuse.GetAttrIn{}); attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("mode %o", attr.Mode)
	}
	again := c.open(f.NodeId, unix.O_RDONLY)
	if got := c.read(again.Fh, 0, 100); got != "still here" {
		t.Errorf("read %q", got)
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	a := c.create(1, "a", unix.O_RDWR, 0o600)
	b := c.create(1, "b", unix.O_RDWR, 0o600)
	sub := ask[fuse.EntryOut](c, wire.Mkdir, 1, &fuse.MkdirIn{Mode: 0o700}, name("sub"))
	rename := func(from, to string, newdir uint64, flags uint32) unix.Errno {
		errno, _ := call(c, wire.Rename2, 1, &fuse.RenameIn{Newdir: newdir, Flags: flags}, name(from), name(to))
		return errno
	}
	if errno := rename("a", "b", 1, unix.RENAME_NOREPLACE); errno != unix.EEXIST {
		t.Errorf("rename without replacing: %v", errno)
	}
	if errno := rename("a", "b", 1, unix.RENAME_EXCHANGE); errno != 0 {
		t.Errorf("exchange: %v", errno)
	}
	if got := c.mustLookup(1, "b"); got.NodeId != a.NodeId {
		t.Error("b is not what was a")
	}
	if errno := rename("b", "c", sub.NodeId, 0); errno != 0 {
		t.Errorf("rename: %v", errno)
	}
	if attr := ask[fuse.AttrOut](c, wire.Getattr, a.NodeId, &fuse.GetAttrIn{}); attr.Ino != a.Ino {
		t.Error("the node is lost after a rename")
	}
	if errno := rename("a", "over", 1, 0); errno != 0 {
		t.Errorf("rename: %v", errno)
	}
	if errno := rename("sub", "elsewhere", 1, 0); errno != 0 {
		t.Errorf("rename of a directory: %v", errno)
	}
	for _, n := range []uint64{a.NodeId, b.NodeId, sub.NodeId} {
		ask[fuse.AttrOut](c, wire.Getattr, n, &fuse.GetAttrIn{})
	}
}

// After the host has replaced a file, the guest's node does not lead to the new
// one.
func TestReplacedOnTheHost(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	old := c.mustLookup(1, "f")
	keep, err := os.Open(path) // so that the new file has another inode number
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	if err := os.WriteFile(path+".new", []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if errno, _ := call(c, wire.Getattr, old.NodeId, &fuse.GetAttrIn{}); errno != unix.ESTALE {
		t.Errorf("getattr of what was replaced: %v", errno)
	}
	now := c.mustLookup(1, "f")
	if now.NodeId == old.NodeId || now.Size != 5 {
		t.Errorf("node %d was %d, size %d", now.NodeId, old.NodeId, now.Size)
	}
}

// A write without CAP_FSETID clears set-id bits as on the host: a set-group-ID
// bit without group execution stays for members of the group.
func TestWriterClearsSpecialBits(t *testing.T) {
	for _, test := range []struct {
		name     string
		uid, gid uint32
		from, to uint32
	}{
		{"of the group", 1000, 1000, 0o6755, 0o755},
		{"of the group, no execution", 1000, 1000, 0o2705, 0o2705},
		{"of another group", 1001, 1001, 0o4777, 0o777},
	} {
		for op, do := range map[string]func(c *client, f *fuse.OpenOut, node uint64){
			"write": func(c *client, f *fuse.OpenOut, node uint64) {
				in := &fuse.WriteIn{Fh: f.Fh, Size: 1, WriteFlags: fuse.WRITE_KILL_SUIDGID}
				ask[fuse.WriteOut](c, wire.Write, node, in, []byte("x"))
			},
			"truncate": func(c *client, _ *fuse.OpenOut, node uint64) {
				in := &fuse.SetAttrIn{}
				in.Valid, in.Size = fuse.FATTR_SIZE|fuse.FATTR_KILL_SUIDGID, 1
				ask[fuse.AttrOut](c, wire.Setattr, node, in)
			},
			"fallocate": func(c *client, f *fuse.OpenOut, node uint64) {
				ask[struct{}](c, wire.Fallocate, node, &fuse.FallocateIn{Fh: f.Fh, Length: 4096})
			},
		} {
			t.Run(test.name+"/"+op, func(t *testing.T) {
				c := newClient(t, t.TempDir())
				f := c.create(1, "file", unix.O_RDWR, 0o600)
				set := &fuse.SetAttrIn{}
				set.Valid = fuse.FATTR_UID | fuse.FATTR_GID
				set.Owner = fuse.Owner{Uid: 1000, Gid: 1000}
				ask[fuse.AttrOut](c, wire.Setattr, f.NodeId, set)
				set = &fuse.SetAttrIn{}
				set.Valid, set.Mode = fuse.FATTR_MODE, test.from
				ask[fuse.AttrOut](c, wire.Setattr, f.NodeId, set)
				open := c.open(f.NodeId, unix.O_RDWR)
				c.uid, c.gid = test.uid, test.gid
				do(c, open, f.NodeId)
				if got := ask[fuse.AttrOut](c, wire.Getattr, f.NodeId, &fuse.GetAttrIn{}); got.Mode&0o7777 != test.to {
					t.Errorf("mode %o became %o, want %o", test.from, got.Mode&0o7777, test.to)
				}
			})
		}
	}
}

// A flush reaches the file system. The threads' seccomp list has no dup, which
// would make a descriptor that programs started meanwhile inherit.
func TestFlush(t *testing.T) {
	c := newClient(t, t.TempDir())
	f := c.create(1, "f", unix.O_RDWR, 0o600)
	if errno, _ := call(c, wire.Flush, f.NodeId, &fuse.FlushIn{Fh: f.Fh}); errno != 0 {
		t.Errorf("flush: %v", errno)
	}
}
