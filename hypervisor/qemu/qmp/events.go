package qmp

import (
	"context"
	"errors"
	"sync"
)

const (
	// MaxQueuedEvents is how many events are queued for one slow subscriber.
	MaxQueuedEvents = 8192
	// maxQueuedBytes bounds the same queue by its events' size on the wire.
	maxQueuedBytes = 16 << 20
)

// errSlowSubscriber means that a subscription ended because its subscriber left
// more than MaxQueuedEvents events waiting.
var errSlowSubscriber = errors.New("event subscriber is too slow")

// Subscription is a stream of events, in order and without gaps.
type Subscription struct {
	c    chan Event
	wake chan struct{} // capacity 1: the queue or closed has changed

	mu     sync.Mutex
	queue  []queuedEvent
	bytes  int
	closed bool // no more events are queued
	err    error
}

type queuedEvent struct {
	event Event
	size  int
}

func newSubscription() *Subscription {
	return &Subscription{c: make(chan Event), wake: make(chan struct{}, 1)}
}

// C delivers the events. It is closed when the monitor is closed and all
// events were delivered, when the subscription's context ends, or when the
// subscriber was too slow (Err).
func (s *Subscription) C() <-chan Event { return s.c }

// Err returns an error if events are missing after C's last one.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// push queues an event and never blocks. It returns false once the subscription
// has ended.
func (s *Subscription) push(q queuedEvent) bool {
	s.mu.Lock()
	switch {
	case s.closed:
	case len(s.queue) >= MaxQueuedEvents || s.bytes+q.size > maxQueuedBytes:
		s.closed, s.err = true, errSlowSubscriber
	default:
		s.queue = append(s.queue, q)
		s.bytes += q.size
	}
	open := !s.closed
	s.mu.Unlock()
	s.signal()
	return open
}

// close ends the subscription once the queue is empty.
func (s *Subscription) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pop takes the oldest event. more is false when there will be none.
func (s *Subscription) pop() (ev Event, ok, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil // frees the memory of a burst
		return Event{}, false, !s.closed
	}
	q := s.queue[0]
	s.queue[0] = queuedEvent{}
	s.queue = s.queue[1:]
	s.bytes -= q.size
	return q.event, true, true
}

// run delivers until ctx ends or the last event was taken.
func (s *Subscription) run(ctx context.Context) {
	defer close(s.c)
	defer s.close() // after a cancellation, nothing more is queued
	for {
		ev, ok, more := s.pop()
		if !more {
			return
		}
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case s.c <- ev:
		case <-ctx.Done():
			return
		}
	}
}
