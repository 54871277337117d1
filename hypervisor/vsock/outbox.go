package vsock

import (
	"slices"
	"sync"
)

// maxResets bounds the resets that wait for receive buffers. A guest that
// provides no buffers loses resets, each of which only answers one of its
// packets.
const maxResets = 1024

// pending is a set of control packets that a connection has to send.
type pending uint8

const (
	pendRequest pending = 1 << iota
	pendCredit
	pendShutdown
)

// outbox holds the control packets that wait for a receive buffer of the
// guest: at most one of each kind per connection, built when it is sent so that
// it has the newest credit.
type outbox struct {
	mu     sync.Mutex
	conns  []*conn // those with pending set, in order
	resets []addrPair
}

// add queues packets of a connection. flags are those of a shutdown.
func (o *outbox) add(c *conn, what pending, flags uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.forgotten {
		return
	}
	if !c.queued {
		c.queued = true
		o.conns = append(o.conns, c)
	}
	c.pending |= what
	c.shutFlags |= flags
}

// forget drops a connection's pending packets permanently. unheard reports
// whether its request was among them, so that the guest has never seen the
// connection.
func (o *outbox) forget(c *conn) (unheard bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unheard = c.pending&pendRequest != 0
	c.pending, c.forgotten = 0, true
	if i := slices.Index(o.conns, c); c.queued && i >= 0 {
		o.conns = slices.Delete(o.conns, i, i+1)
	}
	c.queued = false
	return unheard
}

// reset queues a reset for a connection that is not, or no longer, in the
// table.
func (o *outbox) reset(a addrPair) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.resets) < maxResets {
		o.resets = append(o.resets, a)
	}
}

// clear drops all resets: their receiver has restarted.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resets = nil
}

// empty reports whether there is nothing to send.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.resets) == 0 && len(o.conns) == 0
}

// flush sends pending packets while there are receive buffers. It is called
// within Do of the receive queue.
func (o *outbox) flush(s *sender) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.resets) > 0 {
		sent, err := s.control(o.resets[0], opReset, 0, 0, 0)
		if !sent || err != nil {
			return err
		}
		o.resets = o.resets[1:]
	}
	for len(o.conns) > 0 {
		done, err := o.flushConn(s, o.conns[0])
		if !done || err != nil {
			return err
		}
		o.conns[0].queued = false
		o.conns[0] = nil
		o.conns = o.conns[1:]
	}
	return nil
}

// flushConn sends a connection's packets in a valid order.
func (o *outbox) flushConn(s *sender, c *conn) (bool, error) {
	for c.pending != 0 {
		var what pending
		var op operation
		var flags uint32
		switch {
		case c.pending&pendRequest != 0:
			what, op = pendRequest, opRequest
		case c.pending&pendCredit != 0:
			what, op = pendCredit, opCreditUpdate
		default:
			what, op, flags = pendShutdown, opShutdown, c.shutFlags
		}
		sent, err := s.control(c.addr, op, flags, c.bufAlloc, c.credit())
		if !sent || err != nil {
			return false, err
		}
		c.pending &^= what
		if op == opRequest {
			c.requested.Store(true)
		}
		if op == opShutdown && flags&shutSend != 0 {
			c.finSent = true
		}
	}
	return true, nil
}
