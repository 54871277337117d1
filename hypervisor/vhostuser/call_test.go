package vhostuser

import (
	"testing"
	"time"
)

// A front end that makes the kick's eventfd blocking does not keep Serve from
// ending.
func TestBlockingKick(t *testing.T) {
	f, ended := serve(t, newReverser(nil))
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	roundTrip(t, f, q, "one")
	q.BlockKick()
	if got := roundTrip(t, f, q, "two"); got != "owt" {
		t.Errorf("with a blocking kick: %q", got)
	}
	time.Sleep(50 * time.Millisecond) // the loop waits again
	f.Close()
	if err := await(t, ended); err != nil {
		t.Errorf("serve: %v", err)
	}
}

// Nor does one that has a write to the call's eventfd wait: those who need the
// queue meanwhile get it.
func TestBlockingCall(t *testing.T) {
	d := newReverser(nil)
	f, ended := serve(t, d)
	f.Handshake()
	q := f.NewQueue(0, 8)
	q.Start(0)
	roundTrip(t, f, q, "one")
	q.BlockCall()
	q.Offer(0) // the answer's interrupt waits
	for !d.queues[0].call.writing.Load() {
		time.Sleep(time.Millisecond)
	}
	got := make(chan error, 1)
	go func() { got <- d.queues[0].Do(func(*Ring) error { return nil }) }()
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("do after an interrupt that waited: %v", err)
		}
	case <-time.After(10 * stuckTime):
		t.Error("the queue is locked as long as the front end wants")
	}
	f.Close()
	if err := await(t, ended); err != nil {
		t.Errorf("serve: %v", err)
	}
}
