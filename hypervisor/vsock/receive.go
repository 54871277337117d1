package vsock

import "github.com/katabox/katabox/hypervisor/vhostuser"

// receive handles one packet of the guest. It is called within Do of the
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
	case h.op == opRequest && (c == nil || c.abandoned()):
		d.accept(addr, h)
	case c == nil:
		d.refuse(nil, addr, h.op)
	case !c.receive(h, b):
		d.refuse(c, addr, h.op)
	}
}

// refuse answers a packet that has no place with a reset, unless it is one, and
// ends the connection that it was for.
func (d *device) refuse(c *conn, a addrPair, op operation) {
	if c != nil {
		c.end(errReset, errReset)
	}
	if op != opReset {
		d.outbox.reset(a)
	}
}

// accept takes a connection of the guest if somebody listens and has room.
func (d *device) accept(a addrPair, h header) {
	if !d.enqueue(a, h) {
		d.outbox.reset(a)
	}
}

// enqueue makes an open connection and puts it into its listener's backlog.
func (d *device) enqueue(a addrPair, h header) bool {
	if old := d.find(a); old != nil {
		old.end(errReset, errReset) // closing on our side: the guest is ahead
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.listeners[a.host]
	if l == nil || len(l.backlog) == cap(l.backlog) {
		return false
	}
	c, err := d.insert(a, stateOpen)
	if err != nil {
		return false
	}
	c.peerAlloc, c.peerFwd = h.bufAlloc, h.fwdCount
	// Before anyone can write to it, for the answer must be the guest's first.
	d.outbox.add(c, pendResponse, 0)
	// Only this goroutine fills the backlog, and mu is held since its room
	// was seen: this does not wait.
	l.backlog <- c
	return true
}
