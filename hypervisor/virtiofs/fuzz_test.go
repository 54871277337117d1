package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// FuzzRequests sends arbitrary requests through the ring, about nodes and
// handles of which some exist. The server answers each, does not panic, and
// nothing outside of the share changes.
//
// Inputs of an odd length are sent with private memory. A request is the opcode, a node's number, and a number of bytes after the
// header.
func FuzzRequests(f *testing.F) {
	for op := range wire.MaxOp {
		f.Add([]byte{byte(op), 1, 40, 0, 0, 0, 0, 0, 0, 0, 0, 'f', 0, 'g', 0})
		f.Add([]byte{byte(op), 2, 24, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x', 'y', 0, '.', '.', 0})
	}
	base := f.TempDir()
	dir, canary := filepath.Join(base, "share"), filepath.Join(base, "canary")
	if err := os.WriteFile(canary, []byte("tweet"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../canary", filepath.Join(dir, "f")); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		private = len(input)%2 == 1
		defer func() { private = false }()
		c := newClient(t, dir)
		c.lookup(1, "d")
		c.lookup(1, "f")
		c.create(1, "g", unix.O_RDWR, 0o600)
		for n := 0; len(input) >= 3 && n < 32; n++ {
			op, node, size := input[0], input[1], min(int(input[2]), len(input)-3)
			c.anything(op, node, input[3:3+size])
			input = input[3+size:]
		}
		if got, err := os.ReadFile(canary); err != nil || string(got) != "tweet" {
			t.Fatalf("the file outside of the share has %q, %v", got, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
}

// anything sends a request with those bytes behind the header.
func (c *client) anything(op, node byte, body []byte) {
	h := fuse.InHeader{Length: uint32(len(body)), Opcode: uint32(op), Unique: 7, NodeId: uint64(node)}
	p := append(append([]byte{}, bytesOf(&h)...), body...)
	got := c.send(p, 8192)
	if wire.Op(op).HasReply() && len(got) < int(unsafe.Sizeof(fuse.OutHeader{})) {
		c.t.Errorf("opcode %d is not answered", op)
	}
}

// Malformed requests, and requests without room for an answer, are returned
// too.
func TestMalformedRequests(t *testing.T) {
	c := newClient(t, t.TempDir())
	header := fuse.InHeader{Opcode: uint32(wire.Getattr), NodeId: 1}
	huge := make([]byte, clientBuffer)
	copy(huge, bytesOf(&fuse.InHeader{Opcode: uint32(wire.Setxattr), NodeId: 1}))
	for what, test := range map[string]struct {
		request []byte
		room    int
	}{
		"shorter than a header":        {[]byte{1, 2, 3}, 100},
		"no room":                      {append(bytesOf(&header), make([]byte, 16)...), 1},
		"room for half a reply":        {append(bytesOf(&header), make([]byte, 16)...), 40},
		"longer than any request":      {huge, 100},
		"no fixed part":                {bytesOf(&header), 4096},
		"a read of a file that is not": {append(bytesOf(&fuse.InHeader{Opcode: uint32(wire.Read)}), make([]byte, 40)...), 4096},
	} {
		c.send(test.request, test.room)
		if _, errno := c.lookup(1, "absent"); errno != unix.ENOENT {
			t.Errorf("after a request that is %s: %v", what, errno)
		}
	}
}

// A flood of forgets of unknown nodes does no harm, and forgotten nodes are
// removed.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	d := ask[fuse.EntryOut](c, wire.Mkdir, 1, &fuse.MkdirIn{Mode: 0o700}, name("d"))
	for node := range uint64(100) {
		c.unique++
		in := fuse.ForgetIn{Nlookup: ^uint64(0)}
		in.Opcode, in.NodeId = uint32(wire.Forget), node
		if got := c.send(bytesOf(&in), 16); len(got) != 0 {
			t.Fatalf("a forget is answered: %x", got)
		}
	}
	if errno, _ := call(c, wire.Getattr, d.NodeId, &fuse.GetAttrIn{}); errno != unix.ESTALE {
		t.Errorf("getattr of what was forgotten: %v", errno)
	}
	c.mustLookup(1, "d") // the root stays
}
