package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"
)

// Owed counts a server's connections, and the requests on them that were not
// answered yet. ttrpc's own Shutdown does not wait for all of them: a connection
// counts as idle, and is closed immediately, until its first answer since it was
// idle. So the answer to the Shutdown request itself was lost if no other request
// was in progress.
type Owed struct {
	answers, conns *count
}

// NewOwed returns a count of zero.
func NewOwed() *Owed {
	return &Owed{answers: newCount(), conns: newCount()}
}

// Listener returns a listener whose connections are counted. ttrpc's server tries again
// when it lacks memory: the server's end would be the pod's.
func (o *Owed) Listener(l net.Listener) net.Listener { return countedListener{l, o} }

// linger is how long clients have to disconnect once they have their answers. A
// ttrpc client that sees an answer and the connection's end together may report
// either.
const linger = 300 * time.Millisecond

// Wait waits until nothing is owed and then, for a moment, until no client is
// connected. It fails if ctx ends before everything is answered.
func (o *Owed) Wait(ctx context.Context) error {
	select {
	case <-o.answers.none():
	case <-ctx.Done():
		return fmt.Errorf("wait for answers to be sent: %w", context.Cause(ctx))
	}
	select {
	case <-o.conns.none():
	case <-time.After(linger):
	case <-ctx.Done():
	}
	return nil
}

// WhenAlone calls f when no client has been connected for that long, each time, until
// the function that it returns is called.
func (o *Owed) WhenAlone(limit time.Duration, f func()) (stop func()) {
	return o.conns.whenZero(limit, f)
}

// count is a number with a channel that reports when it is 0.
type count struct {
	mu sync.Mutex // guards what follows
	n  int
	// zero is closed when n is 0, and replaced when n is no longer 0.
	zero chan struct{}
	// idle runs while n is 0, for limit; it may be nil.
	idle  *time.Timer
	limit time.Duration
}

func newCount() *count {
	c := &count{zero: make(chan struct{})}
	close(c.zero)
	return c
}

// none returns a channel that is closed when the number is 0.
func (c *count) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.zero
}

// whenZero is WhenAlone for any number.
func (c *count) whenZero(limit time.Duration, f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle, c.limit = time.AfterFunc(limit, f), limit
	if c.n > 0 {
		c.idle.Stop()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Stop()
		c.idle = nil
	}
}

func (c *count) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.n
	c.n += n
	switch {
	case before == 0 && c.n > 0:
		c.zero = make(chan struct{})
		if c.idle != nil {
			c.idle.Stop()
		}
	case before > 0 && c.n == 0:
		close(c.zero)
		if c.idle != nil {
			c.idle.Reset(c.limit)
		}
	}
}

type countedListener struct {
	net.Listener
	owed *Owed
}

// Accept implements net.Listener.
func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, asLack(err)
	}
	l.owed.conns.add(1)
	return &countedConn{Conn: conn, owed: l.owed}, nil
}

// countedConn counts the frames that pass. One goroutine reads and one writes, as
// ttrpc does.
type countedConn struct {
	net.Conn
	owed    *Owed
	in, out frames

	mu      sync.Mutex // guards what follows
	pending int
	closed  bool
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.count(c.in.count(p[:n], typeRequest))
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.count(-c.out.count(p[:n], typeResponse))
	return n, err
}

// Close implements net.Conn. A client that is gone is no longer owed answers.
func (c *countedConn) Close() error {
	c.mu.Lock()
	c.owed.answers.add(-c.pending)
	if !c.closed {
		c.owed.conns.add(-1)
	}
	c.pending, c.closed = 0, true
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *countedConn) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	// An answer without a request (ttrpc refuses a frame) settles nothing.
	n = max(n, -c.pending)
	c.pending += n
	c.owed.answers.add(n)
}

// ttrpc's frames (PROTOCOL.md): length of the payload (4 bytes, big endian),
// stream (4), type (1), flags (1), payload.
const (
	headerLen    = 10
	typeAt       = 8
	typeRequest  = 1
	typeResponse = 2
)

// frames parses one direction of a connection.
type frames struct {
	header [headerLen]byte
	// have is how much of the header was read, rest how much of the payload is
	// still to come.
	have int
	rest uint32
}

// count returns how many frames of a type begin in data, the next bytes of the
// connection: a frame counts with the last byte of its header.
func (f *frames) count(data []byte, kind byte) (n int) {
	for len(data) > 0 {
		if f.rest > 0 {
			skip := min(uint64(f.rest), uint64(len(data)))
			f.rest -= uint32(skip)
			data = data[skip:]
			continue
		}
		copied := copy(f.header[f.have:], data)
		f.have += copied
		data = data[copied:]
		if f.have < headerLen {
			return n
		}
		f.have, f.rest = 0, binary.BigEndian.Uint32(f.header[:])
		if f.header[typeAt] == kind {
			n++
		}
	}
	return n
}
