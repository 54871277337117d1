package vsock

import (
	"fmt"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// sender fills receive buffers of the guest.
type sender struct {
	ring  *vhostuser.Ring
	chain vhostuser.Chain
}

// control sends a packet without payload. It returns false if the guest has no
// receive buffer left.
func (s *sender) control(a addrPair, op operation, flags, bufAlloc, fwdCount uint32) (bool, error) {
	n, err := s.send(header{
		srcCID: hostCID, dstCID: guestCID,
		srcPort: a.host, dstPort: a.guest,
		kind: typeStream, op: op, flags: flags,
		bufAlloc: bufAlloc, fwdCount: fwdCount,
	}, nil)
	return n >= 0, err
}

// send fills one receive buffer with a header and as much of p as fits, and
// returns the payload's length, or -1 if the guest has no receive buffer left.
// It sets h's length.
func (s *sender) send(h header, p []byte) (int, error) {
	ok, err := s.ring.Pop(&s.chain)
	if !ok || err != nil {
		return -1, err
	}
	room := s.chain.In.Len()
	if room < headerLen || (len(p) > 0 && room == headerLen) {
		return -1, fmt.Errorf("receive buffer of %d bytes: %w", room, vhostuser.ErrBroken)
	}
	n := int(min(uint64(len(p)), room-headerLen, maxPayload))
	h.length = uint32(n)
	var raw [headerLen]byte
	h.encode(&raw)
	s.chain.In.CopyFrom(raw[:])
	s.chain.In.CopyFrom(p[:n])
	s.ring.Push(s.chain.Head, uint32(headerLen+n))
	return n, nil
}
