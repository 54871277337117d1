package vsock

import (
	"errors"
	"os"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// Write implements net.Conn. It returns when all of p is in the guest's
// receive buffers.
func (c *conn) Write(p []byte) (int, error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	done := 0
	for {
		n, turn, err := c.reserve(len(p) - done)
		if err != nil {
			return done, c.opError("write", err)
		}
		if n == 0 {
			return done, nil
		}
		sent, waiting := c.dev.push(c, p[done:done+n], turn)
		done += sent
		c.settle(n-sent, waiting)
	}
}

// reserve waits until some of n bytes may be sent, and takes that much of the
// guest's credit. With a turn, push need not join the line. Without an error
// and with n above 0, settle must follow.
func (c *conn) reserve(n int) (granted int, turn bool, err error) {
	c.mu.Lock()
	for err == nil {
		switch {
		case c.writeErr != nil:
			err = c.writeErr
		case c.writeBy.expired:
			err = os.ErrDeadlineExceeded
		case n == 0:
			c.mu.Unlock()
			return 0, false, nil
		case !c.wantTurn && c.creditLeft() > 0:
			granted = min(n, int(c.creditLeft()), maxPayload)
			c.sent += uint32(granted)
			c.wantTurn = true
			turn, c.hasTurn = c.hasTurn, false
			c.mu.Unlock()
			return granted, turn, nil
		case c.hasTurn:
			// There was credit when it joined the line: the guest has since
			// reduced it.
			c.hasTurn = false
			c.mu.Unlock()
			c.dev.line.next()
			c.mu.Lock()
		default:
			c.writable.Wait()
		}
	}
	turn, c.hasTurn, c.wantTurn = c.hasTurn, false, false
	c.mu.Unlock()
	if turn {
		c.dev.line.next()
	}
	return 0, false, err
}

// creditLeft returns how much the guest can still receive, as it reported. The
// caller holds mu.
func (c *conn) creditLeft() uint32 {
	if used := c.sent - c.peerFwd; used < c.peerAlloc {
		return c.peerAlloc - used
	}
	return 0
}

// settle returns the credit for what was not sent. If the connection waits in
// line, it still wants a turn, unless it got one meanwhile.
func (c *conn) settle(unsent int, waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent -= uint32(unsent)
	if !waiting {
		c.wantTurn = false
	}
}

// giveTurn gives the turn to the waiting Write. It returns false if there is
// none.
func (c *conn) giveTurn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wantTurn {
		return false
	}
	c.wantTurn, c.hasTurn = false, true
	c.writable.Broadcast()
	return true
}

// push copies p into the guest's receive buffers. It stops early when there are
// no more, or others were first: then the connection waits in line. The caller
// must have set wantTurn, because the turn may come before push returns.
func (d *device) push(c *conn, p []byte, turn bool) (sent int, waiting bool) {
	callNext := false
	err := d.rx.Do(func(r *vhostuser.Ring) error {
		d.sender.ring = r
		err := d.outbox.flush(&d.sender)
		if err == nil && !c.finSent && (turn || d.line.empty()) {
			sent, err = d.sender.data(c, p)
		}
		if sent < len(p) && !c.finSent {
			d.line.join(c)
			waiting = true
		}
		callNext = r.Available()
		return err
	})
	switch {
	case errors.Is(err, vhostuser.ErrStopped):
		d.line.join(c)
		waiting = true
		// The queue's first kick may already have passed.
		callNext = d.rx.Running()
	case err != nil:
		d.queueFailed(err)
	}
	if callNext {
		d.line.next()
	}
	return sent, waiting
}

// data sends as much of p as fits into the available receive buffers.
func (s *sender) data(c *conn, p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := s.send(header{
			srcCID: hostCID, dstCID: guestCID,
			srcPort: c.addr.host, dstPort: c.addr.guest,
			kind: typeStream, op: opData,
			bufAlloc: c.bufAlloc, fwdCount: c.credit(),
		}, p[sent:])
		if n < 0 || err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}
