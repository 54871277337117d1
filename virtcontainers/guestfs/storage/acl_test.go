package storage

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
)

// FUSE constants (Linux, include/uapi/linux/fuse.h).
const (
	fuseInit     = 26
	fusePosixACL = 1 << 20
	allFlags     = 0x3fff_ffff // without extensions of the request
)

// Every server of the share must negotiate POSIX ACLs, so that the guest's
// kernel checks which user may set one: otherwise it passes the attribute on
// for any user.
func TestServersAgreeOnACLs(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *Share{
		"virtiofsd": newShare,
		"own": func(t *testing.T) *Share {
			s, err := OpenShare(t.Context(), ShareOptions{ID: "pod", Scratch: t.TempDir(), Tag: "t", Cache: "auto"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			if flags := agreed(t, open(t)); flags&fusePosixACL == 0 {
				t.Errorf("flags %#x lack FUSE_POSIX_ACL", flags)
			}
		})
	}
}

// agreed begins a FUSE session and returns the flags of the reply.
func agreed(t *testing.T, s *Share) uint32 {
	t.Helper()
	f := vhosttest.New(t, s.conn)
	f.Handshake()
	f.NewQueue(0, 64).Start(0)
	q := f.NewQueue(1, 64)
	out, outAddr := f.Mem.Alloc(4096)
	in, inAddr := f.Mem.Alloc(4096)
	const length = 40 + 16
	le := binary.LittleEndian
	le.PutUint32(out[0:], length)
	le.PutUint32(out[4:], fuseInit)
	le.PutUint64(out[8:], 1) // its number
	le.PutUint32(out[40:], 7)
	le.PutUint32(out[44:], 36)
	le.PutUint32(out[52:], allFlags)
	q.SetDesc(0, vhosttest.Desc{Addr: outAddr, Len: length, Flags: vhosttest.Next, Next: 1})
	q.SetDesc(1, vhosttest.Desc{Addr: inAddr, Len: 80, Flags: vhosttest.Write})
	q.Start(0)
	q.Offer(0)
	for {
		if _, _, ok := q.Used(); ok {
			break
		}
		if !q.Wait(10 * time.Second) {
			t.Fatal("FUSE_INIT is not answered")
		}
	}
	if status := int32(le.Uint32(in[4:])); status != 0 {
		t.Fatalf("FUSE_INIT: %d", status)
	}
	return le.Uint32(in[16+12:])
}
