package virtiofs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// A sync of the guest's reaches the disks of files that are mounted one by one, in the
// share and in a volume: they are in the file system of the directory there.
func TestSyncOfFileMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to mount needs root")
	}
	share := t.TempDir()
	volume := filepath.Join(share, "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, volume)
	disks := map[string]string{}
	for _, dir := range []string{".", "volume"} {
		source := t.TempDir()
		disks[dir] = mountImage(t, "ext4", source)
		if err := os.WriteFile(filepath.Join(source, "db"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		bindFile(t, filepath.Join(source, "db"), filepath.Join(share, dir, "db"))
	}
	_, front := serveDir(t, share, passthrough.Rootfs)
	c := rawClientOf(t, front).begin()
	for dir, node := range map[string]uint64{".": 1, "volume": c.mustLookup(1, "volume").NodeId} {
		text := "written in " + dir
		c.write(c.open(c.mustLookup(node, "db").NodeId, unix.O_RDWR).Fh, 0, text)
		for _, synced := range []bool{false, true} {
			if synced {
				c.syncfs(node)
			}
			disk, err := os.ReadFile(disks[dir])
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(disk, []byte(text)); got != synced {
				t.Errorf("%q is on the disk: %v, want %v", text, got, synced)
			}
		}
	}
}

// A mounted file that is gone, or has nothing to flush, is no error of a sync.
func TestSyncWithoutFileMounts(t *testing.T) {
	share := t.TempDir()
	file := filesOfTmpfs(t, t.TempDir(), 1)[0]
	bindFile(t, file, filepath.Join(share, "gone"))
	bindFile(t, "/proc/sys/kernel/hostname", filepath.Join(share, "made"))
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	bindFile(t, fifo, filepath.Join(share, "fifo"))
	server, front := serveDir(t, share, passthrough.Rootfs)
	c := rawClientOf(t, front).begin()
	for _, name := range []string{"gone", "made", "fifo"} {
		c.mustLookup(1, name)
	}
	c.syncfs(1)
	if err := server.Drop(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	c.syncfs(1)
}

// syncfsIn is fuse.h's fuse_syncfs_in.
type syncfsIn struct {
	fuse.InHeader
	_ uint64
}

func (c *client) syncfs(node uint64) {
	c.t.Helper()
	if errno, _ := call(c, wire.Syncfs, node, &syncfsIn{}); errno != 0 {
		c.t.Errorf("syncfs of node %d: %v", node, errno)
	}
}

// unopened is a file of a file system that hangs when its files are opened.
type unopened struct {
	fs.Inode
	end <-chan struct{}
}

var (
	_ fs.NodeOpener    = (*unopened)(nil)
	_ fs.NodeGetattrer = (*unopened)(nil)
)

func (f *unopened) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) unix.Errno {
	out.Mode = unix.S_IFREG | 0o644
	return 0
}

func (f *unopened) Open(context.Context, uint32) (fs.FileHandle, uint32, unix.Errno) {
	<-f.end
	return nil, 0, 0
}

// A mounted file whose file system hangs holds up syncs of the share, or of the volume that
// it is mounted in, and nothing else. It is not idle until then.
func TestHungSync(t *testing.T) {
	for _, dir := range []string{"", "volume"} {
		share, source := t.TempDir(), t.TempDir()
		end := make(chan struct{})
		mountFUSE(t, source, map[string]fs.InodeEmbedder{"file": &unopened{end: end}})
		if dir != "" {
			if err := os.Mkdir(filepath.Join(share, dir), 0o700); err != nil {
				t.Fatal(err)
			}
			mountTmpfs(t, filepath.Join(share, dir))
		}
		at := filepath.Join(dir, "file")
		bindFile(t, filepath.Join(source, "file"), filepath.Join(share, at))
		server, f := serveDir(t, share, passthrough.Auto)
		finish := sync.OnceFunc(func() { close(end) })
		t.Cleanup(finish)
		c := rawClientOf(t, f).begin()
		node := uint64(1)
		if dir != "" {
			node = c.mustLookup(1, dir).NodeId
		}
		c.mustLookup(node, "file")
		hangSyncs(t, c, node)
		for _, want := range []bool{false, true} {
			if want {
				finish()
			}
			for deadline := time.Now().Add(10 * time.Second); server.Idle(at) != want; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%s is idle: %v, and is flushed: %v", at, !want, !want)
				}
			}
		}
	}
}

// hangSyncs requests as many syncs of a directory as there are threads but one, and then
// something else about it, which is to be answered.
func hangSyncs(t *testing.T, c *client, node uint64) {
	t.Helper()
	offer := func(i int, op wire.Op) {
		in := fuse.InHeader{Length: uint32(len(bytesOf(&fuse.InHeader{}))), Opcode: uint32(op), NodeId: node, Unique: 1000 + uint64(i)}
		copy(c.out[i*64:], bytesOf(&in))
		c.q.SetDesc(2*i, vhosttest.Desc{Addr: c.outAddr + uint64(i*64), Len: in.Length, Flags: vhosttest.Next, Next: uint16(2*i + 1)})
		c.q.SetDesc(2*i+1, vhosttest.Desc{Addr: c.inAddr + uint64(i*1024), Len: 1024, Flags: vhosttest.Write})
		c.q.Offer(uint16(2 * i))
	}
	for i := range maxThreads - 1 { // the queue has twice as many descriptors
		offer(i, wire.Syncfs)
	}
	for range 3 {
		offer(maxThreads-1, wire.Statfs)
		awaitUsed(t, c.q)
	}
}
