package qmp

import (
	"context"
	"sync"
)

// hub passes each event to all subscribers. Events before the first subscriber
// are kept for it, within the bounds of a subscriber's queue; beyond these the
// oldest are dropped.
type hub struct {
	mu     sync.Mutex
	early  []queuedEvent
	bytes  int
	seen   bool // there was a subscriber
	subs   map[*Subscription]struct{}
	closed bool
}

func newHub() *hub { return &hub{subs: make(map[*Subscription]struct{})} }

func (h *hub) publish(ev Event, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := queuedEvent{event: ev, size: size}
	if !h.seen {
		h.keep(q)
		return
	}
	for s := range h.subs {
		if !s.push(q) {
			delete(h.subs, s)
		}
	}
}

// keep stores an event for the first subscriber. The caller holds mu.
func (h *hub) keep(q queuedEvent) {
	h.early = append(h.early, q)
	h.bytes += q.size
	for len(h.early) > MaxQueuedEvents || h.bytes > maxQueuedBytes {
		h.bytes -= h.early[0].size
		h.early = h.early[1:]
	}
}

func (h *hub) subscribe(ctx context.Context) *Subscription {
	s := newSubscription()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.seen {
		h.seen = true
		s.queue, s.bytes = h.early, h.bytes
		h.early, h.bytes = nil, 0
	}
	if h.closed {
		s.closed = true
	} else {
		h.subs[s] = struct{}{}
	}
	go func() {
		s.run(ctx)
		h.forget(s)
	}()
	return s
}

func (h *hub) forget(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

// close ends all subscriptions, each after its last event.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		s.close()
	}
}
