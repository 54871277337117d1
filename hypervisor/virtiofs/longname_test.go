package virtiofs

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// longNamed is a file system of the host's with a file of each name.
type longNamed struct {
	fs.Inode
	names []string
}

// OnAdd implements fs.NodeOnAdder.
func (l *longNamed) OnAdd(ctx context.Context) {
	for _, name := range l.names {
		l.AddChild(name, l.NewPersistentInode(ctx, &fs.MemRegularFile{Data: []byte(name)}, fs.StableAttr{}), false)
	}
}

// A name may have more than 255 bytes where the host's file system counts characters:
// vfat, CIFS.
func TestLongNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	root := &longNamed{names: []string{strings.Repeat("字", 255), strings.Repeat("n", wire.NameMax), "short"}}
	dir := t.TempDir()
	host, err := fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := host.Unmount(); err != nil {
			t.Error(err)
		}
	})
	_, front := serveDir(t, dir, passthrough.Auto)
	c := rawClientOf(t, front).begin()
	for _, name := range root.names {
		file, errno := c.lookup(1, name)
		if errno != 0 {
			t.Errorf("look up a name of %d bytes: %v", len(name), errno)
			continue
		}
		opened := c.open(file.NodeId, unix.O_RDONLY)
		if got := c.read(opened.Fh, 0, 4096); got != name {
			t.Errorf("read %d bytes, want %d", len(got), len(name))
		}
		c.release(opened.Fh)
	}
	if _, errno := c.lookup(1, strings.Repeat("n", wire.NameMax+1)); errno != unix.ENAMETOOLONG {
		t.Errorf("look up a longer name: %v, want %v", errno, unix.ENAMETOOLONG)
	}
	listed := c.namesIn(1)
	for _, name := range root.names {
		if !slices.Contains(listed, name) {
			t.Errorf("a name of %d bytes is not listed", len(name))
		}
	}
}

// namesIn lists a directory, a page of entries at a time.
func (c *client) namesIn(dir uint64) []string {
	c.t.Helper()
	return c.namesFrom(ask[fuse.OpenOut](c, wire.Opendir, dir, &fuse.OpenIn{}).Fh, 0)
}

// namesFrom lists what is in an open directory from an offset on.
func (c *client) namesFrom(fh, off uint64) (names []string) {
	c.t.Helper()
	for {
		errno, p := call(c, wire.Readdirplus, 1, &fuse.ReadIn{Fh: fh, Offset: off, Size: 4096})
		if errno != 0 {
			c.t.Fatalf("list: %v", errno)
		}
		if len(p) == 0 {
			return names
		}
		for len(p) > 0 {
			e := p[unsafe.Sizeof(fuse.EntryOut{}):]
			off = binary.NativeEndian.Uint64(e[8:])
			end := 24 + int(binary.NativeEndian.Uint32(e[16:]))
			names = append(names, string(e[24:end]))
			p = e[(end+7)&^7:]
		}
	}
}
