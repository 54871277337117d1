package vsock

import "github.com/katabox/katabox/hypervisor/vhostuser"

// receive handles one packet from the guest. It is called within Do of the
// transmit queue, so it never waits and sends nothing itself.
func (d *device) receive(b *vhostuser.Buffers) {
	h, ok := readHeader(b)
	if !ok || h.srcCID != guestCID || h.dstCID != hostCID {
		return // malformed or not for us: vhost-vsock drops it too
	}
	addr := addrPair{host: h.dstPort, guest: h.srcPort}
	c := d.find(addr)
	switch {
	case h.kind != typeStream:
		d.refuse(nil, addr, h.op)
	case c == nil: // including requests: the host accepts no connections
		d.refuse(nil, addr, h.op)
	case !c.receive(h, b):
		d.refuse(c, addr, h.op)
	}
}

// refuse answers an invalid packet with a reset, unless the packet is itself a
// reset, and ends its connection.
func (d *device) refuse(c *conn, a addrPair, op operation) {
	if c != nil {
		c.end(errReset, errReset)
	}
	if op != opReset {
		d.outbox.reset(a)
	}
}
