package virtiofs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// hungMount mounts a FUSE file system that answers only what mounting needs,
// and returns a function that releases the waiting calls.
func hungMount(t *testing.T, at string) (release func()) {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this test needs FUSE in this machine's kernel: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)
	if err := unix.Mount("katabox-hung", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	released := false
	release = func() {
		if !released {
			released = true
			_ = unix.Unmount(at, unix.MNT_FORCE|unix.MNT_DETACH)
			_ = unix.Close(dev)
		}
	}
	t.Cleanup(release)
	return release
}

// A mount that hangs blocks its own requests, and leaves threads for others.
func TestHungMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "hung"), 0o755); err != nil {
		t.Fatal(err)
	}
	release := hungMount(t, filepath.Join(dir, "hung"))
	server, f := serveDir(t, dir, passthrough.Auto)
	f.Handshake()
	q := f.NewQueue(requestQueue, 512)
	q.Start(0)
	in, inAddr := f.Mem.Alloc(4096)
	out, outAddr := f.Mem.Alloc(256 * 1024)
	offer := func(i int, request []byte) {
		copy(out[i*512:], request)
		q.SetDesc(2*i, vhosttest.Desc{Addr: outAddr + uint64(i*512), Len: uint32(len(request)), Flags: vhosttest.Next, Next: uint16(2*i + 1)})
		q.SetDesc(2*i+1, vhosttest.Desc{Addr: inAddr, Len: uint32(len(in)), Flags: vhosttest.Write})
		q.Offer(uint16(2 * i))
	}
	init := fuse.InitIn{Major: 7, Minor: 38, Flags: ^uint32(0)}
	init.Opcode = uint32(wire.Init)
	offer(0, bytesOf(&init))
	awaitUsed(t, q)
	// Twice as many as there are threads.
	for i := range 2 * maxThreads {
		h := fuse.InHeader{Opcode: uint32(wire.Lookup), NodeId: 1}
		offer(1+i, append(bytesOf(&h), name("hung")...))
	}
	stat := fuse.GetAttrIn{}
	stat.Opcode, stat.NodeId = uint32(wire.Statfs), 1
	for range 3 {
		offer(200, bytesOf(&stat))
		awaitUsed(t, q)
	}
	if err := server.pool.close(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "still wait") {
		t.Errorf("close while threads hang: %v", err)
	}
	release()
}

func awaitUsed(t *testing.T, q *vhosttest.Queue) {
	t.Helper()
	for {
		if _, _, ok := q.Used(); ok {
			return
		}
		if !q.Wait(20 * time.Second) {
			t.Fatal("no reply")
		}
	}
}
