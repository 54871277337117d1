package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// forgetter sends forgets by the queue that guests use for them.
type forgetter struct {
	q    *vhosttest.Queue
	mem  []byte
	addr uint64
}

// fullClient is a client of a share with a full tmpfs of 1 MiB.
func fullClient(t *testing.T) (c *client, volume uint64, big *fuse.CreateOut, f forgetter) {
	t.Helper()
	dir := t.TempDir()
	_, front := serveDir(t, dir, passthrough.Auto)
	c = rawClientOf(t, front).begin()
	f = forgetter{q: front.NewQueue(priorityQueue, 4)}
	f.mem, f.addr = front.Mem.Alloc(4096)
	f.q.Start(0)
	if err := os.Mkdir(filepath.Join(dir, "volume"), 0o755); err != nil {
		t.Fatal(err)
	}
	mountTmpfs(t, filepath.Join(dir, "volume"))
	volume = c.mustLookup(1, "volume").NodeId
	big = c.create(volume, "big", unix.O_RDWR, 0o600)
	chunk := string(make([]byte, 64<<10))
	for off := uint64(0); c.tryWrite(big.Fh, off, chunk) == 0; {
		off += uint64(len(chunk))
	}
	return c, volume, big, f
}

func (c *client) tryWrite(fh, off uint64, data string) unix.Errno {
	c.t.Helper()
	errno, _ := call(c, wire.Write, 0, &fuse.WriteIn{Fh: fh, Offset: off, Size: uint32(len(data))}, []byte(data))
	return errno
}

// forget forgets all lookups of a node.
func (f forgetter) forget(node uint64) {
	in := fuse.ForgetIn{Nlookup: 1 << 20}
	in.Opcode, in.NodeId, in.Length = uint32(wire.Forget), node, uint32(len(bytesOf(&in)))
	f.q.SetDesc(0, vhosttest.Desc{Addr: f.addr, Len: uint32(copy(f.mem, bytesOf(&in)))})
	f.q.Offer(0)
}

// A guest that removes a file to make room may write before its forget of the file has
// arrived. The write has that room.
func TestWriteAfterRemoval(t *testing.T) {
	for _, test := range []struct {
		name   string
		remove func(c *client, volume uint64)
	}{
		{"unlink", func(c *client, volume uint64) {
			ask[struct{}](c, wire.Unlink, volume, &fuse.InHeader{}, name("big"))
		}},
		{"rename over it", func(c *client, volume uint64) {
			ask[struct{}](c, wire.Rename2, volume, &fuse.RenameIn{Newdir: volume}, name("next"), name("big"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, volume, big, f := fullClient(t)
			next := c.create(volume, "next", unix.O_RDWR, 0o600)
			c.release(big.Fh)
			test.remove(c, volume)
			timer := time.AfterFunc(50*time.Millisecond, func() { f.forget(big.NodeId) })
			defer timer.Stop()
			if errno := c.tryWrite(next.Fh, 0, "x"); errno != 0 {
				t.Errorf("write after the removal: %v", errno)
			}
		})
	}
}

// A removed file that stays open, as a temporary one does, takes its room still. It
// delays only the first write without room.
func TestWriteWhileRemovedIsOpen(t *testing.T) {
	c, volume, big, f := fullClient(t)
	next := c.create(volume, "next", unix.O_RDWR, 0o600)
	ask[struct{}](c, wire.Unlink, volume, &fuse.InHeader{}, name("big"))
	if errno := c.tryWrite(next.Fh, 0, "x"); errno != unix.ENOSPC {
		t.Errorf("write while the removed file is open: %v, want ENOSPC", errno)
	}
	begin := time.Now()
	for range 100 {
		if errno := c.tryWrite(next.Fh, 0, "x"); errno != unix.ENOSPC {
			t.Errorf("another write: %v, want ENOSPC", errno)
		}
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("100 writes without room took %v", took)
	}
	c.release(big.Fh)
	timer := time.AfterFunc(50*time.Millisecond, func() { f.forget(big.NodeId) })
	defer timer.Stop()
	if errno := c.tryWrite(next.Fh, 0, "x"); errno != 0 {
		t.Errorf("write after the release: %v", errno)
	}
}
