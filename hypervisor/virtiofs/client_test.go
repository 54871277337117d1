package virtiofs

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// private makes serveDir reach the guest's memory as another process's.
var private bool

// self is this process, which has the guest's memory in these tests, as its
// owner.
type self struct{}

func (self) Hold() (int, bool)       { return os.Getpid(), true }
func (self) Release()                {}
func (self) User() (uid, gid uint32) { return 0, 0 }

// TestPrivateMemory runs others' tests, with memory that is not mapped.
func TestPrivateMemory(t *testing.T) {
	private = true
	defer func() { private = false }()
	for name, test := range map[string]func(*testing.T){
		"CreateWriteRead": TestCreateWriteRead, "Names": TestNames, "Rename": TestRename, "UnlinkedFile": TestUnlinkedFile,
		"HostileNames": TestHostileNames, "MalformedRequests": TestMalformedRequests, "Forget": TestForget, "Floods": TestFloods,
		"DuplicatedChains": TestDuplicatedChains, "OpenWithoutEnd": TestOpenWithoutEnd,
	} {
		t.Run(name, test)
	}
}

// anySpecial allows the guest everything.
func anySpecial(string) passthrough.Special {
	return passthrough.Special{Devices: true, Capabilities: true}
}

// serveDir serves a directory to a front end.
func serveDir(t testing.TB, dir string, policy passthrough.Policy) (*Server, *vhosttest.FrontEnd) {
	t.Helper()
	return serveAs(t, dir, Options{Policy: func(string) passthrough.Policy { return policy }, Special: anySpecial})
}

// serveAs is serveDir with the rest of the options.
func serveAs(t testing.TB, dir string, opts Options) (*Server, *vhosttest.FrontEnd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to shut threads in needs root")
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := os.NewFile(uintptr(fd), dir)
	mounts, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	opts.Root, opts.Mounts = root, mounts
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = root.Close()
		_ = mounts.Close()
	})
	if private {
		if err := s.Reach(self{}); err != nil {
			t.Fatal(err)
		}
	}
	front := s.Front()
	defer front.Close()
	return s, vhosttest.New(t, front)
}

// client is a FUSE client over the device, in place of the guest. It makes one
// request at a time.
type client struct {
	t       testing.TB
	q       *vhosttest.Queue
	out, in []byte
	outAddr uint64
	inAddr  uint64
	unique  uint64
	// The user that makes the requests.
	uid, gid uint32
	pid      uint32 // its thread
	// Used by transfer: an indirect table.
	table        []vhosttest.Desc
	indirect     []byte
	indirectAddr uint64
}

const clientBuffer = 2 << 20

// newClient begins a session on a directory.
func newClient(t testing.TB, dir string) *client {
	t.Helper()
	return newRawClient(t, dir).begin()
}

// begin begins the session.
func (c *client) begin() *client {
	c.t.Helper()
	var in fuse.InitIn
	in.Major, in.Minor, in.Flags = 7, 38, ^uint32(0)
	out := ask[fuse.InitOut](c, wire.Init, 0, &in)
	if out.Major != 7 || out.MaxWrite != 1<<20 {
		c.t.Fatalf("init: %+v", out)
	}
	return c
}

func newRawClient(t testing.TB, dir string) *client {
	t.Helper()
	_, f := serveDir(t, dir, passthrough.Auto)
	return rawClientOf(t, f)
}

func rawClientOf(t testing.TB, f *vhosttest.FrontEnd) *client { return rawClientOn(t, f, 128) }

// rawClientOn is rawClientOf with a queue of a number of entries.
func rawClientOn(t testing.TB, f *vhosttest.FrontEnd, entries int) *client {
	f.Handshake()
	c := &client{t: t, q: f.NewQueue(requestQueue, entries)}
	c.out, c.outAddr = f.Mem.Alloc(clientBuffer)
	c.in, c.inAddr = f.Mem.Alloc(clientBuffer)
	c.q.Start(0)
	return c
}

// bytesOf returns a structure's memory.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// send sends a request, whose header the caller has filled, with room for a
// reply, and returns the reply, nil if there was none.
func (c *client) send(request []byte, room int) []byte {
	c.t.Helper()
	copy(c.out, request)
	clear(c.in[:min(room, 4096)])
	c.q.SetDesc(0, vhosttest.Desc{Addr: c.outAddr, Len: uint32(len(request)), Flags: vhosttest.Next, Next: 1})
	c.q.SetDesc(1, vhosttest.Desc{Addr: c.inAddr, Len: uint32(room), Flags: vhosttest.Write})
	c.q.Offer(0)
	for {
		if _, n, ok := c.q.Used(); ok {
			return c.in[:n]
		}
		if !c.q.Wait(20 * time.Second) {
			c.t.Fatal("no reply")
		}
	}
}

// call makes a request: in begins with an InHeader, tail follows it.
func call[T any](c *client, op wire.Op, node uint64, in *T, tail ...[]byte) (unix.Errno, []byte) {
	c.t.Helper()
	p := append([]byte{}, bytesOf(in)...)
	for _, more := range tail {
		p = append(p, more...)
	}
	c.unique++
	h := (*fuse.InHeader)(unsafe.Pointer(&p[0]))
	*h = fuse.InHeader{Length: uint32(len(p)), Opcode: uint32(op), Unique: c.unique, NodeId: node}
	h.Uid, h.Gid, h.Pid = c.uid, c.gid, c.pid
	got := c.send(p, 1<<20+16)
	if len(got) < 16 {
		c.t.Fatalf("reply to opcode %d of %d bytes", op, len(got))
	}
	if length := binary.NativeEndian.Uint32(got); int(length) != len(got) || binary.NativeEndian.Uint64(got[8:]) != c.unique {
		c.t.Fatalf("reply to opcode %d: %d bytes, says %d; %x", op, len(got), length, got[:16])
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(got[4:]))), got[16:]
}

// ask makes a request that must succeed, and returns its reply.
func ask[Out, In any](c *client, op wire.Op, node uint64, in *In, tail ...[]byte) *Out {
	c.t.Helper()
	errno, p := call(c, op, node, in, tail...)
	var out Out
	if errno != 0 || len(p) < int(unsafe.Sizeof(out)) {
		c.t.Fatalf("opcode %d: %v, %d bytes", op, errno, len(p))
	}
	copy(bytesOf(&out), p)
	return &out
}

func name(s string) []byte { return append([]byte(s), 0) }

func (c *client) lookup(dir uint64, n string) (*fuse.EntryOut, unix.Errno) {
	c.t.Helper()
	errno, p := call(c, wire.Lookup, dir, &fuse.InHeader{}, name(n))
	var out fuse.EntryOut
	copy(bytesOf(&out), p)
	return &out, errno
}

func (c *client) mustLookup(dir uint64, n string) *fuse.EntryOut {
	c.t.Helper()
	out, errno := c.lookup(dir, n)
	if errno != 0 {
		c.t.Fatalf("lookup %q: %v", n, errno)
	}
	return out
}

func (c *client) create(dir uint64, n string, flags, mode uint32) *fuse.CreateOut {
	c.t.Helper()
	return ask[fuse.CreateOut](c, wire.Create, dir, &fuse.CreateIn{Flags: flags, Mode: unix.S_IFREG | mode}, name(n))
}

func (c *client) open(node uint64, flags uint32) *fuse.OpenOut {
	c.t.Helper()
	return ask[fuse.OpenOut](c, wire.Open, node, &fuse.OpenIn{Flags: flags})
}

func (c *client) write(fh, off uint64, data string) uint32 {
	c.t.Helper()
	return ask[fuse.WriteOut](c, wire.Write, 0, &fuse.WriteIn{Fh: fh, Offset: off, Size: uint32(len(data))}, []byte(data)).Size
}

func (c *client) read(fh, off uint64, size uint32) string {
	c.t.Helper()
	errno, p := call(c, wire.Read, 0, &fuse.ReadIn{Fh: fh, Offset: off, Size: size})
	if errno != 0 {
		c.t.Fatalf("read: %v", errno)
	}
	return string(p)
}
