package vsock

import (
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// FuzzReceive lets a guest send any packets while it receives none. The device
// stays within its bounds, and everything can still be closed.
//
// Twelve bytes of the input make a packet that is likely to matter: operation,
// ports out of a few, flags, credit, and the payload's length, which may be
// wrong. An operation of 255 is followed by a whole raw header instead.
func FuzzReceive(f *testing.F) {
	packet := func(op, guest, host, flags byte, n uint16) []byte {
		p := []byte{op, guest, host, flags, 0, 1, 0, 0}
		return append(binary.LittleEndian.AppendUint16(p, n), 0, 0)
	}
	f.Add(append(packet(1, 1, 0, 0, 0), packet(5, 1, 0, 0, 5000)...))
	f.Add(append(packet(2, 9, 1, 0, 0), packet(4, 9, 1, 3, 0)...))
	f.Add(append(packet(1, 1, 0, 0, 0), packet(7, 1, 0, 0, 0)...))
	f.Add(append([]byte{255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, make([]byte, headerLen)...))
	f.Fuzz(func(t *testing.T, input []byte) {
		d := newDevice(context.Background())
		c, err := d.newDialing((*device).freePort, 9)
		must(t, err)
		c.requested.Store(true)
		payload := make([]byte, maxPayload)
		for len(input) >= 12 {
			var raw []byte
			raw, input = nextPacket(input, c.addr)
			n := int(binary.LittleEndian.Uint16(input[8:]))
			if input = input[12:]; n%7 == 0 {
				n /= 2 // shorter than in the header
			}
			b := vhostuser.Plain(raw[:20], raw[20:], payload[:min(n, len(payload))])
			d.receive(&b)
			checkBounds(t, d)
		}
		d.shut(net.ErrClosed)
		if len(d.conns) != 0 || d.dialing != 0 {
			t.Errorf("%d connections, %d dialing are left", len(d.conns), d.dialing)
		}
	})
}

// nextPacket makes the header of a packet; the caller skips its twelve bytes.
func nextPacket(input []byte, dialled addrPair) (raw, rest []byte) {
	var p [headerLen]byte
	if input[0] == 255 && len(input) >= 12+headerLen {
		copy(p[:], input[12:])
		return p[:], append(input[:12:12], input[12+headerLen:]...)
	}
	hosts := []uint32{1000, dialled.host}
	header{
		srcCID: guestCID, dstCID: hostCID, kind: typeStream,
		op:       operation(input[0] % 9),
		srcPort:  uint32(input[1]),
		dstPort:  hosts[int(input[2])%len(hosts)],
		flags:    uint32(input[3]),
		bufAlloc: binary.LittleEndian.Uint32(input[4:]),
		length:   uint32(binary.LittleEndian.Uint16(input[8:])),
		fwdCount: uint32(binary.LittleEndian.Uint16(input[10:])),
	}.encode(&p)
	return p[:], input
}

func checkBounds(t *testing.T, d *device) {
	t.Helper()
	if len(d.conns) > 1 || len(d.outbox.conns) > len(d.conns) || len(d.outbox.resets) > maxResets {
		t.Fatalf("%d connections, %d with packets, %d resets", len(d.conns), len(d.outbox.conns), len(d.outbox.resets))
	}
	for a, c := range d.conns {
		if c.state == stateDead || c.addr != a || c.in.len > int(c.bufAlloc) {
			t.Fatalf("connection %+v in state %d holds %d bytes", a, c.state, c.in.len)
		}
		if c.in.block != nil && len(c.in.block.data) > int(c.bufAlloc) {
			t.Fatalf("buffer of %d bytes for a credit of %d", len(c.in.block.data), c.bufAlloc)
		}
	}
}

// FuzzRecvBuf compares the buffer with a plain slice.
func FuzzRecvBuf(f *testing.F) {
	f.Add([]byte{0x10, 0x81, 0x7f, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var r recvBuf
		var want []byte
		next := byte(0)
		for _, s := range steps {
			n := int(s&0x7f) * 700
			if s&0x80 == 0 {
				n = min(n, maxBufAlloc-r.len)
				data := make([]byte, n)
				for i := range data {
					data[i] = next
					next++
				}
				b := vhostuser.Plain(data[:n/3], data[n/3:])
				r.fill(&b, n)
				want = append(want, data...)
			} else {
				got := make([]byte, n)
				got = got[:r.read(got)]
				if len(got) != min(n, len(want)) || string(got) != string(want[:len(got)]) {
					t.Fatalf("read %d bytes of %d, or the wrong ones", len(got), len(want))
				}
				want = want[len(got):]
			}
			if r.len != len(want) || (r.block == nil) != (r.len == 0) {
				t.Fatalf("holds %d bytes, want %d", r.len, len(want))
			}
		}
	})
}
