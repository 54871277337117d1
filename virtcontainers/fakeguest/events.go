package fakeguest

import (
	"context"
	"sync"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// HoldEvents keeps events from the host until release is called.
func (a *Agent) HoldEvents() (release func()) {
	q := a.queue()
	q.hold(true)
	return func() { q.hold(false) }
}

// eventQueue keeps events until they are sent.
type eventQueue struct {
	reading ctxmutex.Mutex // held by the stream that sends them

	mu      sync.Mutex         // guards what follows
	reader  context.CancelFunc // ends that stream
	events  []*api.Event
	taken   int
	held    bool
	closed  bool
	changed chan struct{}
}

func newEventQueue() *eventQueue {
	return &eventQueue{changed: make(chan struct{}), reader: func() {}, reading: ctxmutex.New()}
}

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

// stream sends events as they come, in place of an earlier stream. It returns nil once
// the queue is closed and empty.
func (q *eventQueue) stream(ctx context.Context, send func(*api.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.replaceReader(cancel)
	if err := q.reading.Lock(ctx); err != nil {
		return err
	}
	defer q.reading.Unlock()
	for {
		ev, err := q.next(ctx)
		if ev == nil || err != nil {
			return err
		}
		if err := send(ev); err != nil {
			return err
		}
		q.drop(ev)
	}
}

// replaceReader ends the stream that sends the events.
func (q *eventQueue) replaceReader(cancel context.CancelFunc) {
	q.mu.Lock()
	before := q.reader
	q.reader = cancel
	q.mu.Unlock()
	before()
}

// drop removes an event that was sent.
func (q *eventQueue) drop(ev *api.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken++
	if len(q.events) > 0 && q.events[0] == ev {
		q.events = q.events[1:]
	}
}

// next waits for an event, and leaves it in the queue. It returns nil if the queue is
// closed, and an error once ctx ends.
func (q *eventQueue) next(ctx context.Context) (*api.Event, error) {
	for {
		q.mu.Lock()
		changed, closed := q.changed, q.closed
		if len(q.events) > 0 && !q.held && ctx.Err() == nil { // otherwise it is for the next stream
			ev := q.events[0]
			q.mu.Unlock()
			return ev, nil
		}
		q.mu.Unlock()
		if closed {
			return nil, nil //nolint:nilnil // no event, and no error
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *eventQueue) hold(held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = held
	q.notify()
}
