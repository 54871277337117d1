package stdio

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

type reader interface{ Read([]byte) (int, error) }

// guestStream is a connection with the output of a process.
type guestStream interface {
	reader
	closer
}

// output copies a guest's stream to the engine's FIFO and counts the bytes. The
// stream comes on one connection or, if it is parked, on one after another.
type output struct {
	// breaks: a FIFO without a reader gives the process a broken pipe.
	breaks bool

	mu sync.Mutex // guards what follows
	// blocked is set while the engine does not read, and blockedAt is when it last
	// was.
	blocked   bool
	blockedAt time.Time
	// conns are the connections that it owns: the first is copied, the others
	// wait for its end. Each rebind while the engine does not read adds one, up
	// to mostConns.
	conns []guestStream
	// parked: another connection follows, or rebind says that none does.
	parked bool
	// passed is the number of bytes given to the engine.
	passed uint64
	ended  bool
	// changed is closed and replaced at each change.
	changed chan struct{}
}

// mostConns is the number of connections from which on an output is not parked:
// each can hold unread data of the guest (hypervisor/vsock).
const mostConns = 8

func newOutput(breaks bool) *output {
	return &output{breaks: breaks, changed: make(chan struct{})}
}

// begin makes conn the first connection. The guest has sent that many bytes of
// the stream to others before.
func (o *output) begin(conn guestStream, sent uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conns, o.passed = []guestStream{conn}, sent
}

// checkRead returns an error for an output that the engine has not read since it
// was parked often.
func (o *output) checkRead() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.conns); n >= mostConns {
		return fmt.Errorf("its output is not read: %d connections wait for the engine, read it first: %w", n, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// park keeps the output from ending with its connection.
func (o *output) park() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parked = true
}

// rebind continues after park with a new connection, which it owns from now on,
// when the old one has been read to its end. Without one the output ends then.
func (o *output) rebind(conn guestStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parked = false
	switch {
	case conn == nil:
	case o.ended:
		_ = conn.Close()
	default:
		o.conns = append(o.conns, conn)
	}
	o.notify()
}

// close ends the output at once.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parked = false
	o.closeConns()
	o.notify()
}

// closeConns must be called with mu held.
func (o *output) closeConns() {
	for _, conn := range o.conns {
		_ = conn.Close()
	}
	o.conns = nil
}

// run copies until the guest's stream ends, or the engine's reader is gone and
// the process is to know it.
func (o *output) run(fifo *os.File) {
	defer o.end()
	to := &outlet{fifo: fifo, breaks: o.breaks, passed: o.add, blocked: o.setBlocked, buf: make([]byte, firstBuffer)}
	for conn := o.first(); conn != nil; conn = o.next() {
		if broken := o.copy(to, conn); broken {
			return // end closes the connection
		}
	}
}

// copy copies one connection to its end. The end is the guest's, or the
// machine's: then nothing follows.
func (o *output) copy(to *outlet, conn guestStream) (broken bool) {
	for {
		n, err := conn.Read(to.buf)
		if broken := to.write(n); broken {
			return true
		}
		if err != nil {
			if errdefs.IsDataLoss(err) {
				log.L.WithError(err).Warn("the rest of a process's output is lost")
			}
			return false
		}
	}
}

// first returns the connection to be copied, nil after close.
func (o *output) first() guestStream {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.conns) == 0 {
		return nil
	}
	return o.conns[0]
}

// next closes the connection that has ended, and returns the one that follows,
// nil if none does. It waits as long as the output is parked.
func (o *output) next() guestStream {
	o.mu.Lock()
	if len(o.conns) > 0 {
		_ = o.conns[0].Close()
		o.conns = o.conns[1:]
	}
	for len(o.conns) == 0 && o.parked {
		changed := o.changed
		o.mu.Unlock()
		<-changed
		o.mu.Lock()
	}
	defer o.mu.Unlock()
	if len(o.conns) == 0 {
		o.ended = true // here, so that no rebind comes too late
		return nil
	}
	return o.conns[0]
}

func (o *output) setBlocked(is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if is || o.blocked {
		o.blockedAt = time.Now()
	}
	o.blocked = is
}

// isHeldBack reports whether the engine does not read, or did not a moment ago.
func (o *output) isHeldBack() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.blocked || time.Since(o.blockedAt) < stalled
}

// within returns n, but no more than a guest can have: it has passed on the rest.
func (o *output) within(n uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return min(n, o.passed+mostHeld)
}

func (o *output) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passed += uint64(n)
	o.notify()
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.closeConns()
	o.notify()
}

// notify must be called with mu held.
func (o *output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// await waits until n bytes were passed on, until the stream or ctx has ended, or
// until nothing has moved for a while, or drainLimit is over: a guest may promise
// more than it sends. patient does not end while it is the engine that does not read,
// or not fast.
func (o *output) await(ctx context.Context, n uint64, patient bool) {
	limit := time.After(drainLimit)
	for {
		o.mu.Lock()
		enough, changed := o.ended || o.passed >= n, o.changed
		o.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-changed:
		case <-time.After(stalled):
			if !patient || !o.isHeldBack() {
				return
			}
		case <-limit:
			if !patient || !o.isHeldBack() {
				return
			}
			limit = time.After(stalled)
		case <-ctx.Done():
			return
		}
	}
}
