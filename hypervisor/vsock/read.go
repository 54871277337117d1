package vsock

import (
	"io"
	"os"
	"syscall"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		return 0, c.opError("read", err)
	}
	if n > 0 {
		c.consumed(n)
	}
	return n, nil
}

func (c *conn) read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.readErr
		case c.readBy.expired:
			return 0, os.ErrDeadlineExceeded
		case c.in.len > 0 || len(p) == 0:
			return c.in.read(p), nil
		case c.readErr != nil:
			return 0, c.readErr
		}
		c.readable.Wait()
	}
}

// consumed counts what was read, and updates the guest in time: when half of
// the buffer has become free since the last update. The guest can use the other
// half meanwhile; each additional update would cost it an interrupt.
func (c *conn) consumed(n int) {
	fwd := c.fwdCount.Add(uint32(n))
	if fwd-c.toldFwd.Load() >= c.bufAlloc/2 {
		c.dev.outbox.add(c, pendCredit, 0)
		c.dev.flush()
	}
}

// receive handles a packet for this connection. It returns false if the packet
// is invalid here, which ends the connection.
func (c *conn) receive(h header, b *vhostuser.Buffers) bool {
	switch h.op {
	case opReset:
		c.peerReset()
		return true
	case opResponse:
		return c.peerAnswered(h)
	case opData:
		return c.peerSent(h, b)
	case opShutdown:
		return c.peerShutdown(h)
	case opCreditUpdate:
		return c.peerCredit(h)
	case opCreditRequest:
		if !c.peerCredit(h) {
			return false
		}
		c.dev.outbox.add(c, pendCredit, 0)
		return true
	default:
		return false
	}
}

// peerReset ends the connection. A guest resets a request to a port without a
// listener.
func (c *conn) peerReset() {
	c.mu.Lock()
	refused := c.state == stateDialing
	c.mu.Unlock()
	if refused {
		c.end(syscall.ECONNREFUSED, syscall.ECONNREFUSED)
		return
	}
	c.end(errReset, errReset)
}

func (c *conn) peerAnswered(h header) bool {
	c.mu.Lock()
	if c.state != stateDialing || !c.requested.Load() {
		known := c.state != stateDialing
		c.mu.Unlock()
		return known // a second answer changes nothing
	}
	c.state = stateOpen
	c.setCredit(h)
	close(c.answered)
	c.mu.Unlock()
	c.dev.endDialing()
	return true
}

func (c *conn) peerSent(h header, b *vhostuser.Buffers) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == stateClosing:
		return true // there is no reader
	case c.state != stateOpen || c.peerShut&shutSend != 0:
		return false
	case uint64(h.length) > b.Len() || uint64(c.in.len)+uint64(h.length) > uint64(c.bufAlloc):
		return false // more than the packet has, or than the guest may send
	}
	c.setCredit(h)
	c.in.fill(b, int(h.length))
	c.readable.Broadcast()
	return true
}

// peerShutdown handles a shutdown. A full one is answered with a reset (virtio
// 1.2, section 5.10.6.6.2): the connection leaves the table, and what it
// received stays readable.
func (c *conn) peerShutdown(h header) bool {
	c.mu.Lock()
	if c.state == stateDialing {
		c.mu.Unlock()
		return false
	}
	c.setCredit(h)
	c.peerShut |= h.flags & shutBoth
	if c.peerShut&shutSend != 0 && c.readErr == nil {
		c.readErr = io.EOF
		c.readable.Broadcast()
	}
	if c.peerShut&shutReceive != 0 && c.writeErr == nil {
		c.writeErr = syscall.EPIPE
		c.writable.Broadcast()
	}
	full := c.peerShut == shutBoth
	c.mu.Unlock()
	if full {
		c.end(io.EOF, syscall.EPIPE)
		c.dev.outbox.reset(c.addr)
	}
	return true
}

func (c *conn) peerCredit(h header) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == stateDialing {
		return false
	}
	c.setCredit(h)
	return true
}

// setCredit records how much the guest can receive. The caller holds mu.
func (c *conn) setCredit(h header) {
	if c.peerAlloc == h.bufAlloc && c.peerFwd == h.fwdCount {
		return
	}
	c.peerAlloc, c.peerFwd = h.bufAlloc, h.fwdCount
	c.writable.Broadcast()
}
