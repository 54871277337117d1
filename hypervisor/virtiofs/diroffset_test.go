package virtiofs

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// highOffset is the offset of a directory's first entry, as an NFS server whose
// cookies use all 64 bits has it: lseek(2) takes it for a negative one.
const highOffset = uint64(1)<<63 | 0x1234

// highDir is a directory of the host's whose offsets are such ones. It counts how
// often it is read from its beginning.
type highDir struct {
	fs.Inode
	names []string

	mu     sync.Mutex
	begins int
}

// OnAdd implements fs.NodeOnAdder.
func (d *highDir) OnAdd(ctx context.Context) {
	for _, name := range d.names {
		d.AddChild(name, d.NewPersistentInode(ctx, &fs.MemRegularFile{}, fs.StableAttr{}), false)
	}
}

// OpendirHandle implements fs.NodeOpendirHandler.
func (d *highDir) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return &highList{dir: d}, 0, 0
}

// highList is such a directory that is open.
type highList struct {
	dir *highDir
	at  int
}

// Readdirent implements fs.FileReaddirenter.
func (l *highList) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if l.at == 0 {
		l.dir.mu.Lock()
		l.dir.begins++
		l.dir.mu.Unlock()
	}
	if l.at == len(l.dir.names) {
		return nil, 0
	}
	e := &fuse.DirEntry{Name: l.dir.names[l.at], Mode: unix.S_IFREG, Ino: uint64(l.at + 2), Off: highOffset + uint64(l.at)}
	l.at++
	return e, 0
}

// Seekdir implements fs.FileSeekdirer.
func (l *highList) Seekdir(_ context.Context, off uint64) syscall.Errno {
	l.at = 0
	if off != 0 {
		l.at = int(off - highOffset + 1)
	}
	return 0
}

func mountHigh(t *testing.T, d *highDir) *client {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	dir := t.TempDir()
	host, err := fs.Mount(dir, d, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Skipf("needs FUSE: %v", err)
	}
	t.Cleanup(func() {
		if err := host.Unmount(); err != nil {
			t.Error(err)
		}
	})
	_, front := serveDir(t, dir, passthrough.Auto)
	return rawClientOf(t, front).begin()
}

// A directory whose offsets lseek(2) refuses is listed completely, and not from its
// beginning each time: short names, as many as do not fit into a few replies, and
// long ones, which do not fit where a short one does.
func TestDirectoryOffsetsOf64Bits(t *testing.T) {
	d := &highDir{}
	for i := range 500 {
		name := fmt.Sprintf("f%d", i)
		if i%7 == 0 {
			name += strings.Repeat("n", 30*(i%8))
		}
		d.names = append(d.names, name)
	}
	d.names = append(d.names, strings.Repeat("l", wire.NameMax))
	c := mountHigh(t, d)
	listed := c.namesIn(1)
	if !slices.Equal(listed, d.names) {
		t.Errorf("%d names are listed, want %d", len(listed), len(d.names))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begins > 3 {
		t.Errorf("the directory was read %d times from its beginning", d.begins)
	}
}

// A guest may go back to an entry of such a directory, as seekdir(3) does, and go on
// from one that it was at before its pod was saved.
func TestSeekToOffsetOf64Bits(t *testing.T) {
	d := &highDir{names: []string{"a", "b", "c", "d"}}
	c := mountHigh(t, d)
	fh := ask[fuse.OpenOut](c, wire.Opendir, 1, &fuse.OpenIn{}).Fh
	for _, test := range []struct {
		offset uint64
		want   []string
	}{
		{0, d.names}, {highOffset + 1, d.names[2:]}, {highOffset, d.names[1:]}, {highOffset + 3, nil}, {0, d.names}, {highOffset + 99, nil},
	} {
		if got := c.namesFrom(fh, test.offset); !slices.Equal(got, test.want) {
			t.Errorf("from offset %#x: %q, want %q", test.offset, got, test.want)
		}
	}
}
