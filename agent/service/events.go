package service

import (
	"context"
	"sync"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// eventQueue keeps events in order until the host takes them. There is at
// most one exit for each process and one waiting OOM for each container, so
// it grows with the pod and not with time.
type eventQueue struct {
	mu      sync.Mutex
	events  []*api.Event
	changed chan struct{} // closed and replaced when an event is added
	reader  context.CancelFunc

	reading ctxmutex.Mutex // held by the subscriber
}

func newEventQueue() *eventQueue {
	return &eventQueue{changed: make(chan struct{}), reader: func() {}, reading: ctxmutex.New()}
}

// add adds an event. mu is held.
func (q *eventQueue) add(e *api.Event) {
	q.events = append(q.events, e)
	close(q.changed)
	q.changed = make(chan struct{})
}

// oom adds an OOM kill unless one of the same container is already queued.
func (q *eventQueue) oom(container *currentID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := container.String()
	for _, e := range q.events {
		if e.GetOom().GetContainerId() == id {
			return
		}
	}
	q.add(&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: id}}})
}

// exit adds the end of a process.
func (q *eventQueue) exit(p *process, exit container.Exit, stdout, stderr uint64) {
	pid := p.pid()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(&api.Event{Event: &api.Event_Exit{Exit: &api.Exit{
		ContainerId: p.container.String(),
		ExecId:      p.execID,
		Pid:         pid,
		Status:      exit.Status,
		Signaled:    exit.Signaled,
		ExitedAt:    timestamppb.New(exit.At),
		StdoutBytes: stdout,
		StderrBytes: stderr,
	}}})
}

// peek returns the oldest event, or nil and a channel that is closed when
// there may be one.
func (q *eventQueue) peek() (*api.Event, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return nil, q.changed
	}
	return q.events[0], nil
}

func (q *eventQueue) drop(e *api.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) > 0 && q.events[0] == e {
		q.events = q.events[1:]
	}
}

// clear drops all events.
func (q *eventQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = nil
}

// subscribe ends the previous subscriber, if any, and waits until it sends no
// more, so that no event goes to both. end must be called.
func (q *eventQueue) subscribe(ctx context.Context) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	q.mu.Lock()
	before := q.reader
	q.reader = cancel
	q.mu.Unlock()
	before()
	if err := q.reading.Lock(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { cancel(); q.reading.Unlock() }, nil
}

// stream sends events as they come until ctx is done. An event leaves the
// queue only once it is sent.
func (q *eventQueue) stream(ctx context.Context, send func(*api.Event) error) error {
	ctx, end, err := q.subscribe(ctx)
	if err != nil {
		return err
	}
	defer end()
	for {
		event, more := q.peek()
		if event == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-more:
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := send(event); err != nil {
			return err
		}
		q.drop(event)
	}
}
