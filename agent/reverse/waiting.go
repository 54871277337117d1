package reverse

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/katabox/katabox/internal/relay"
)

const (
	// maxWaiting bounds the connections of one listener that were announced and
	// not asked for; more wait in the kernel's backlog.
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

// waiter is a connection that was announced.
type waiter struct {
	conn relay.HalfCloser // nil: it has waited too long
	late *time.Timer
	// slots are its listener's.
	slots slots
}

// slots has an element for each connection of a listener that was announced and
// not asked for: the room is each listener's alone, because listeners are of
// different containers.
type slots chan struct{}

func newSlots() slots { return make(slots, maxWaiting) }

// add takes over a connection, and closes it unless it is taken in time. One that
// has waited too long keeps its place until the host asks for it, or until drop: a
// host that has enough connections reads no announcements, and they must not pile
// up. add waits for room; on an error the caller keeps conn.
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
	if w.conns == nil {
		w.conns = map[uint64]waiter{}
	}
	w.conns[id] = waiter{conn: conn, late: time.AfterFunc(takeTimeout, func() { w.expire(id) }), slots: room}
	return id, nil
}

// drop closes what waits of a listener that has ended.
func (w *waiting) drop(room slots) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, found := range w.conns {
		if found.slots != room {
			continue
		}
		delete(w.conns, id)
		found.late.Stop()
		if found.conn != nil {
			_ = found.conn.Close()
		}
	}
}

// expire closes a connection that has waited too long.
func (w *waiting) expire(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.conns[id]
	if !ok {
		return
	}
	_ = found.conn.Close()
	found.conn = nil
	w.conns[id] = found
}

// take returns the connection of that number, once, unless it has waited too long.
func (w *waiting) take(id uint64) (relay.HalfCloser, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, ok := w.conns[id]
	if !ok {
		return nil, false
	}
	delete(w.conns, id)
	found.late.Stop()
	<-found.slots
	return found.conn, found.conn != nil
}
