package vsock

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	mdvsock "github.com/mdlayher/vsock"
)

const network = "vsock"

// closeTimeout is how long a closed connection waits for the guest's reset
// before it is reset from here, as in Linux (VSOCK_CLOSE_TIMEOUT is 8 s).
const closeTimeout = 10 * time.Second

// errReset is what both sides of a connection see after a reset.
const errReset = syscall.ECONNRESET

// state is a connection's state; see the package's comment.
type state uint8

const (
	stateDialing state = iota
	stateOpen
	stateClosing
	stateDead
)

// conn is one connection of a device.
type conn struct {
	dev      *device
	addr     addrPair
	bufAlloc uint32        // how much unread data the guest may send, in bytes
	answered chan struct{} // closed when the connection is no longer dialing

	fwdCount  atomic.Uint32 // bytes read by us, by the protocol's counting
	toldFwd   atomic.Uint32 // fwdCount as last sent to the guest
	requested atomic.Bool   // the guest has received our request

	// Guarded by the outbox's lock.
	pending           pending
	shutFlags         uint32
	queued, forgotten bool

	inLine  bool // guarded by the line's mu
	finSent bool // the guest was told that no more data comes; used within Do of rx

	// writeMu is held by the one Write in progress.
	writeMu sync.Mutex

	// mu guards the rest.
	mu                 sync.Mutex
	readable, writable sync.Cond
	readBy, writeBy    deadline
	state              state
	closed             bool // Close was called
	in                 recvBuf
	readErr, writeErr  error // why no more is received, or sent
	dialErr            error
	peerShut           uint32 // what the guest shut down
	closeTimer         *time.Timer

	peerAlloc, peerFwd uint32 // the guest's credit, as last received
	sent               uint32 // bytes sent, wrapping
	wantTurn, hasTurn  bool   // see line
}

var _ Conn = (*conn)(nil)

func newConn(d *device, a addrPair, bufAlloc uint32) *conn {
	c := &conn{dev: d, addr: a, state: stateDialing, bufAlloc: bufAlloc, answered: make(chan struct{})}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	c.readBy.cond, c.writeBy.cond = &c.readable, &c.writable
	return c
}

// credit returns the count to send to the guest. It is called when a packet is
// sent, within Do of the receive queue, so that the guest never sees it
// decrease.
func (c *conn) credit() uint32 {
	n := c.fwdCount.Load()
	c.toldFwd.Store(n)
	return n
}

// end makes a connection dead: buffered data can still be read, then reading
// and writing fail with these errors. The guest is not told.
func (c *conn) end(readErr, writeErr error) {
	c.mu.Lock()
	if c.state == stateDead {
		c.mu.Unlock()
		return
	}
	wasDialing := c.state == stateDialing
	c.state = stateDead
	if c.readErr == nil {
		c.readErr = readErr
	}
	if c.writeErr == nil {
		c.writeErr = writeErr
	}
	if c.closeTimer != nil {
		c.closeTimer.Stop()
	}
	if wasDialing {
		c.dialErr = readErr
		close(c.answered)
	}
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.mu.Unlock()

	c.dev.outbox.forget(c)
	c.dev.remove(c)
	if wasDialing {
		c.dev.endDialing()
	}
}

// transportReset ends the connection after the guest forgot it. If the guest
// has not seen it yet, dialling continues.
func (c *conn) transportReset() {
	c.mu.Lock()
	dialing := c.state == stateDialing
	c.mu.Unlock()
	switch {
	case !dialing:
		c.end(errReset, errReset)
	case c.requested.Load():
		c.end(errRestarted, errRestarted)
	}
}

// abort ends a connection that will not be used, and queues a reset if the
// guest may have seen it. It does not flush.
func (c *conn) abort() {
	c.mu.Lock()
	dead := c.state == stateDead
	c.mu.Unlock()
	if dead {
		return
	}
	unheard := c.dev.outbox.forget(c)
	c.end(net.ErrClosed, net.ErrClosed)
	if !unheard {
		c.dev.outbox.reset(c.addr)
	}
}

// dialError returns how dialling ended, nil if the connection was opened.
func (c *conn) dialError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialErr
}

// Close implements net.Conn. Unread data is dropped; data already written still
// arrives. It does not wait for the guest.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.readErr, c.writeErr = net.ErrClosed, net.ErrClosed
	c.in.drop()
	c.readBy.stop()
	c.writeBy.stop()
	open := c.state == stateOpen
	if open {
		c.state = stateClosing
		c.closeTimer = time.AfterFunc(closeTimeout, c.closeTimedOut)
	}
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.mu.Unlock()
	if open {
		c.dev.outbox.add(c, pendShutdown, shutBoth)
		c.dev.flush()
	}
	return nil
}

func (c *conn) closeTimedOut() {
	c.abort()
	c.dev.flush()
}

// CloseWrite implements Conn. It does not wait for the guest.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	if err := c.writeErr; err != nil {
		c.mu.Unlock()
		return c.opError("close", err)
	}
	c.writeErr = syscall.EPIPE
	c.writable.Broadcast()
	c.mu.Unlock()
	c.dev.outbox.add(c, pendShutdown, shutSend)
	c.dev.flush()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr {
	return &mdvsock.Addr{ContextID: mdvsock.Host, Port: c.addr.host}
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr {
	return &mdvsock.Addr{ContextID: guestCID, Port: c.addr.guest}
}

func (c *conn) opError(op string, err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
