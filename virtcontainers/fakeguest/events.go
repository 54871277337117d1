package fakeguest

import (
	"context"
	"sync"

	"github.com/katabox/katabox/agent/api"
)

// HoldEvents keeps events from the host until release is called.
func (a *Agent) HoldEvents() (release func()) {
	q := a.queue()
	q.hold(true)
	return func() { q.hold(false) }
}

// eventQueue keeps events until they are taken.
type eventQueue struct {
	mu      sync.Mutex // guards what follows
	events  []*api.Event
	taken   int
	held    bool
	closed  bool
	changed chan struct{}
}

func newEventQueue() *eventQueue { return &eventQueue{changed: make(chan struct{})} }

func (q *eventQueue) add(ev *api.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, ev)
	q.notify()
}

// clear drops the events that were not taken.
func (q *eventQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = nil
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.notify()
}

// notify must be called with mu held.
func (q *eventQueue) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// next waits for an event; it returns false if there will be none.
func (q *eventQueue) next(ctx context.Context) (*api.Event, bool) {
	for {
		q.mu.Lock()
		changed, closed := q.changed, q.closed
		if len(q.events) > 0 && !q.held && ctx.Err() == nil { // otherwise it is for the next stream
			ev := q.events[0]
			q.events = q.events[1:]
			q.taken++
			q.mu.Unlock()
			return ev, true
		}
		q.mu.Unlock()
		if closed {
			return nil, false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (q *eventQueue) hold(held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = held
	q.notify()
}
