package stream

import (
	"fmt"
	"net"
	"sync"

	"github.com/containerd/errdefs"
)

// state is that of a stream and its connection; doc.go has the diagram.
type state int

const (
	unbound state = iota
	reserved
	bound
	// parking is bound, but the copying is to stop.
	parking
	// dropping is without a connection: what a terminal's processes write is
	// discarded.
	dropping
	// ended is when nothing is left to copy.
	ended
)

// binding is what inputs and outputs have in common: a stream's connection.
type binding struct {
	mu      sync.Mutex
	changed sync.Cond // on mu
	state   state
	gone    bool // set by close
	claims  int  // the number of the last reservation
	run     *run // the last one; nil before the first
	// replaceable is set if Park was called since the last reservation, even if it
	// failed: the next one takes its place.
	replaceable bool
}

// run is one goroutine's copying over one connection.
type run struct {
	conn  net.Conn      // nil if there is none
	bulk  *bulk         // of an output whose connection has frames
	begin func()        // called before the copying; may be nil
	done  chan struct{} // closed when the copying has stopped and conn is closed
}

// start is called by the goroutine that copies, before it does.
func (r *run) start() {
	if r.begin != nil {
		r.begin()
	}
}

// wait blocks until the copying has stopped; a nil run has.
func (r *run) wait() {
	if r != nil {
		<-r.done
	}
}

func (b *binding) init() { b.changed.L = &b.mu }

// is reports whether the stream is in that state.
func (b *binding) is(s state) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == s
}

// claim reserves the stream, and returns the reservation's number. mu is held.
func (b *binding) claim() (int, error) {
	if b.state != unbound && b.state != dropping && b.state != ended {
		return 0, errdefs.ErrAlreadyExists
	}
	b.state = reserved
	b.replaceable = false
	b.claims++
	return b.claims, nil
}

// allowReplacing lets the next reservation take the place of what there is.
func (b *binding) allowReplacing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replaceable = true
}

// accept begins a run over conn for that reservation. If Park has withdrawn it,
// accept returns nil and closes conn. mu is held.
func (b *binding) accept(claim int, conn net.Conn, begin func()) *run {
	if b.state != reserved || b.claims != claim {
		_ = conn.Close()
		return nil
	}
	b.state = bound
	b.run = &run{conn: conn, begin: begin, done: make(chan struct{})}
	return b.run
}

// close ends the stream's connection.
func (b *binding) close() {
	b.mu.Lock()
	b.gone = true
	b.changed.Broadcast()
	var conn net.Conn
	if b.run != nil {
		conn = b.run.conn
	}
	b.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
}

var errClosed = fmt.Errorf("process is deleted: %w", errdefs.ErrNotFound)
