package passthrough

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// serveRoot serves a request about the share's root that has nothing but its header.
func serveRoot(t *testing.T, fs *FS, th *Thread, op wire.Op) unix.Errno {
	t.Helper()
	var out bytes.Buffer
	header := fuse.InHeader{Opcode: uint32(op), NodeId: rootID}
	if err := binary.Write(&out, binary.NativeEndian, &header); err != nil {
		t.Fatal(err)
	}
	r := wire.NewRequest()
	if err := r.Load(vhostuser.Plain(out.Bytes()), vhostuser.Plain(make([]byte, 4096))); err != nil {
		t.Fatal(err)
	}
	return fs.Serve(th, r)
}

// interruptedOp makes an operation fail with EINTR that many times before it is carried
// out, and returns how often it was tried.
func interruptedOp(t *testing.T, op wire.Op, times int) (tried *int) {
	t.Helper()
	tried = new(int)
	do := operations[op]
	operations[op] = func(fs *FS, th *Thread, r *wire.Request) unix.Errno {
		if *tried++; *tried <= times {
			r.PutBytes([]byte("half an answer"))
			return unix.EINTR
		}
		if r.ReplyLen() != 0 {
			t.Error("an earlier try's answer is left")
		}
		return do(fs, th, r)
	}
	t.Cleanup(func() { operations[op] = do })
	return tried
}

// A signal of Go's, which a file system of the host answers with EINTR, is none of the
// guest's: it has nothing that interrupts its programs.
func TestInterruptedOperation(t *testing.T) {
	root := shareOf(t)
	fs := newFS(t, root)
	onThread(t, func(th *Thread) {
		tried := interruptedOp(t, wire.Statfs, 3)
		if errno := serveRoot(t, fs, th, wire.Statfs); errno != 0 || *tried != 4 {
			t.Errorf("%v after %d tries, want 4", errno, *tried)
		}
		tried = interruptedOp(t, wire.Getattr, 1<<20)
		if errno := serveRoot(t, fs, th, wire.Getattr); errno != unix.EINTR || *tried > 1<<10 {
			t.Errorf("of one that is always interrupted: %v after %d tries", errno, *tried)
		}
		// Whether it has made the name is not known.
		tried = interruptedOp(t, wire.Mkdir, 1)
		if errno := serveRoot(t, fs, th, wire.Mkdir); errno != unix.EINTR || *tried != 1 {
			t.Errorf("of one that makes a name: %v after %d tries, want 1", errno, *tried)
		}
	})
}
