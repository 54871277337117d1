package virtiofs

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// servedFile is a file of a FUSE file system: it says that it has a length, and has more
// or less.
type servedFile struct {
	fs.Inode
	size uint64
}

var (
	_ fs.NodeOpener    = (*servedFile)(nil)
	_ fs.NodeGetattrer = (*servedFile)(nil)
)

func (f *servedFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) unix.Errno {
	out.Mode, out.Size = unix.S_IFREG|0o644, f.size
	return 0
}

func (f *servedFile) Open(context.Context, uint32) (fs.FileHandle, uint32, unix.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// A file of a host's FUSE file system may be generated although it says that it is empty,
// and so are those of fusectl. The guest must not cache them, or finds them empty.
func TestServedFiles(t *testing.T) {
	dir := mountGenerated(t)
	at := filepath.Join(dir, "fuse")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mountFUSE(t, at, map[string]fs.InodeEmbedder{"made": &servedFile{}, "stored": &servedFile{size: 4}})
	ctl := filepath.Join(dir, "ctl")
	if err := os.Mkdir(ctl, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("katabox-test", ctl, "fusectl", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(ctl, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	for _, tt := range []struct {
		path   []string
		flags  uint32
		direct bool
	}{
		{[]string{"fuse", "made"}, unix.O_RDONLY, true},
		{[]string{"fuse", "made"}, unix.O_RDWR, false}, // it may be mapped
		{[]string{"fuse", "stored"}, unix.O_RDONLY, false},
		{[]string{"ctl", strconv.Itoa(int(unix.Minor(st.Dev))), "waiting"}, unix.O_RDONLY, true},
	} {
		node := uint64(1)
		for _, name := range tt.path {
			node = c.mustLookup(node, name).NodeId
		}
		open := c.open(node, tt.flags)
		if got := open.OpenFlags&fuse.FOPEN_DIRECT_IO != 0; got != tt.direct {
			t.Errorf("%v, open flags %#x: it is not cached: %v, want %v", tt.path, tt.flags, got, tt.direct)
		}
		c.release(open.Fh)
	}
}

// mountFUSE mounts a file system with these files, until the test ends.
func mountFUSE(t *testing.T, at string, files map[string]fs.InodeEmbedder) {
	t.Helper()
	root := &fs.Inode{}
	server, err := fs.Mount(at, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, FsName: "katabox-test"},
		OnAdd: func(ctx context.Context) {
			for name, file := range files {
				root.AddChild(name, root.NewPersistentInode(ctx, file, fs.StableAttr{Mode: unix.S_IFREG}), false)
			}
		},
	})
	if err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
}
