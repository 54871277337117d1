package vsock

import (
	"encoding/binary"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// The layout of a packet's header (virtio 1.2, section 5.10.6).
const headerLen = 44

type operation uint16

const (
	opRequest       operation = 1
	opResponse      operation = 2
	opReset         operation = 3
	opShutdown      operation = 4
	opData          operation = 5
	opCreditUpdate  operation = 6
	opCreditRequest operation = 7
)

const (
	typeStream = 1

	// The flags of opShutdown: the sender will receive, or send, no more.
	shutReceive = 1
	shutSend    = 2
	shutBoth    = shutReceive | shutSend
)

// header is a packet's header.
type header struct {
	srcCID, dstCID     uint64
	srcPort, dstPort   uint32
	length             uint32
	kind               uint16
	op                 operation
	flags              uint32
	bufAlloc, fwdCount uint32
}

// readHeader copies a header from the guest's memory and drops it from b. It
// returns false if there is none.
func readHeader(b *vhostuser.Buffers) (header, bool) {
	var p [headerLen]byte
	if b.CopyTo(p[:]) != headerLen {
		return header{}, false
	}
	return decodeHeader(&p), true
}

func decodeHeader(p *[headerLen]byte) header {
	le := binary.LittleEndian
	return header{
		srcCID:   le.Uint64(p[0:]),
		dstCID:   le.Uint64(p[8:]),
		srcPort:  le.Uint32(p[16:]),
		dstPort:  le.Uint32(p[20:]),
		length:   le.Uint32(p[24:]),
		kind:     le.Uint16(p[28:]),
		op:       operation(le.Uint16(p[30:])),
		flags:    le.Uint32(p[32:]),
		bufAlloc: le.Uint32(p[36:]),
		fwdCount: le.Uint32(p[40:]),
	}
}

func (h header) encode(p *[headerLen]byte) {
	le := binary.LittleEndian
	le.PutUint64(p[0:], h.srcCID)
	le.PutUint64(p[8:], h.dstCID)
	le.PutUint32(p[16:], h.srcPort)
	le.PutUint32(p[20:], h.dstPort)
	le.PutUint32(p[24:], h.length)
	le.PutUint16(p[28:], h.kind)
	le.PutUint16(p[30:], uint16(h.op))
	le.PutUint32(p[32:], h.flags)
	le.PutUint32(p[36:], h.bufAlloc)
	le.PutUint32(p[40:], h.fwdCount)
}
