package virtcontainers_test

import (
	"encoding/binary"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// driver is a guest's driver of the share: it makes one request at a time.
type driver struct {
	t     *testing.T
	queue *vhosttest.Queue
	out   []byte
	in    []byte
	descs [2]vhosttest.Desc
}

// newDriver drives the share of the pod's machine.
func newDriver(t *testing.T, socket *os.File) *driver {
	t.Helper()
	front := vhosttest.New(t, socket)
	front.Handshake()
	d := &driver{t: t, queue: front.NewQueue(1, 16)}
	var out, in uint64
	d.out, out = front.Mem.Alloc(4096)
	d.in, in = front.Mem.Alloc(4096)
	d.descs = [2]vhosttest.Desc{{Addr: out, Flags: vhosttest.Next, Next: 1}, {Addr: in, Len: 4096, Flags: vhosttest.Write}}
	d.queue.Start(0)
	return d
}

// Of FUSE's protocol (include/uapi/linux/fuse.h).
const (
	fuseLookup = 1
	fuseInit   = 26
)

// offer makes a request.
func (d *driver) offer(opcode uint32, node uint64, args []byte) {
	p := binary.LittleEndian.AppendUint32(nil, uint32(40+len(args)))
	p = binary.LittleEndian.AppendUint32(p, opcode)
	p = binary.LittleEndian.AppendUint64(p, 1)
	p = binary.LittleEndian.AppendUint64(p, node)
	p = append(append(p, make([]byte, 16)...), args...)
	copy(d.out, p)
	clear(d.in)
	d.descs[0].Len = uint32(len(p))
	for i, desc := range d.descs {
		d.queue.SetDesc(i, desc)
	}
	d.queue.Offer(0)
}

// await waits for the answer, without its header.
func (d *driver) await() []byte {
	d.t.Helper()
	for {
		if _, n, ok := d.queue.Used(); ok {
			if errno := int32(binary.LittleEndian.Uint32(d.in[4:])); n < 16 || errno != 0 {
				d.t.Fatalf("answer of %d bytes, error %d", n, errno)
			}
			return d.in[16:n]
		}
		if !d.queue.Wait(patience) {
			d.t.Fatal("no answer")
		}
	}
}

// lookup returns the number of a file.
func (d *driver) lookup(node uint64, name string) uint64 {
	d.t.Helper()
	d.offer(fuseLookup, node, append([]byte(name), 0))
	return binary.LittleEndian.Uint64(d.await())
}

// sharedDir is a directory whose mounts appear in what was bound from it before.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A pod that waits for a file of the host does not hibernate: the answer would be
// written to memory that is not the guest's any more, and the guest told that it is
// there.
func TestHibernateWithUnansweredRequest(t *testing.T) {
	s := newSleeper(t)
	dir := sharedDir(t)
	opts := s.options("c2", newIO(allStreams))
	opts.Bundle.Spec.Mounts = []specs.Mount{{Destination: "/data", Type: "bind", Source: dir, Options: []string{"rbind", "rslave"}}}
	if _, err := s.Create(t.Context(), opts, ignore); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "hung"), 0o700); err != nil {
		t.Fatal(err)
	}
	release := mountHung(t, filepath.Join(dir, "hung"))
	d := newDriver(t, s.host.Share())
	init := binary.LittleEndian.AppendUint32(nil, 7)
	init = binary.LittleEndian.AppendUint32(init, 38)
	d.offer(fuseInit, 0, append(init, 0, 0, 0, 0, 255, 255, 255, 255))
	d.await()
	node := d.lookup(d.lookup(1, path.Base(api.GuestPodVolumesDir)), "1")
	d.offer(fuseLookup, node, append([]byte("hung"), 0))
	time.Sleep(100 * time.Millisecond) // until it is served
	d.queue.Stop()                     // as QEMU does when it pauses
	if _, err := s.Hibernate(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "1 requests are being served") {
		t.Errorf("error %v", err)
	}
	s.checkAwake()
	release()
}
