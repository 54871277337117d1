package reverse

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/katabox/katabox/internal/relay"
)

const (
	// maxWaiting bounds the connections of one listener that wait to be taken;
	// more wait in the kernel's backlog.
	maxWaiting = 128
	// takeTimeout is how long one waits: the host takes it immediately or, if
	// it already has too many, not at all.
	takeTimeout = 20 * time.Second
)

// waiting holds the connections that were announced to the host. The zero value
// is ready.
type waiting struct {
	mu    sync.Mutex // guards what follows
	last  uint64
	conns map[uint64]waiter
}

// waiter is a connection that waits.
type waiter struct {
	conn relay.HalfCloser
	// stop stops the timer.
	stop func()
	// slots are its listener's.
	slots slots
}

// slots has an element for each connection of a listener that waits: the room
// is each listener's alone, because listeners are of different containers.
type slots chan struct{}

func newSlots() slots { return make(slots, maxWaiting) }

// add takes over a connection, and closes it unless it is taken in time and
// before ctx ends. It waits for room; on an error the caller keeps conn.
func (w *waiting) add(ctx context.Context, room slots, conn relay.HalfCloser) (uint64, error) {
	select {
	case room <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for room for a connection: %w", context.Cause(ctx))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	id := w.last
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	stop := context.AfterFunc(ctx, func() {
		if conn, ok := w.take(id); ok {
			_ = conn.Close()
		}
	})
	if w.conns == nil {
		w.conns = map[uint64]waiter{}
	}
	w.conns[id] = waiter{conn: conn, slots: room, stop: func() {
		stop()
		cancel()
	}}
	return id, nil
}

// take returns the connection of that number, once.
func (w *waiting) take(id uint64) (relay.HalfCloser, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.conns[id]
	if !ok {
		return nil, false
	}
	delete(w.conns, id)
	found.stop()
	<-found.slots
	return found.conn, true
}
