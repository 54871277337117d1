package service

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/container"
)

func exitOf(q *eventQueue, id string) {
	q.exit(newProcess(newID(id), "", nil), container.Exit{}, 0, 0)
}

// take reads n events and ends the subscription.
func take(t *testing.T, q *eventQueue, n int) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := q.stream(ctx, func(e *api.Event) error {
		got = append(got, e.GetExit().GetContainerId())
		if len(got) == n {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return got
}

func TestEventsAreKeptInOrder(t *testing.T) {
	q := newEventQueue()
	for i := range 5 {
		exitOf(q, fmt.Sprint(i))
	}
	if diff := cmp.Diff([]string{"0", "1"}, take(t, q, 2)); diff != "" {
		t.Error(diff)
	}
	go exitOf(q, "5")
	if diff := cmp.Diff([]string{"2", "3", "4", "5"}, take(t, q, 4)); diff != "" {
		t.Error(diff)
	}
}

func TestEventThatWasNotSentIsKept(t *testing.T) {
	q := newEventQueue()
	exitOf(q, "a")
	broken := errors.New("broken")
	if err := q.stream(t.Context(), func(*api.Event) error { return broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a"}, take(t, q, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestNewSubscriberTakesOver(t *testing.T) {
	q := newEventQueue()
	ended := make(chan error, 1)
	began := make(chan struct{})
	exitOf(q, "first")
	go func() {
		ended <- q.stream(context.Background(), func(*api.Event) error { close(began); return nil })
	}()
	<-began
	go func() {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		exitOf(q, "second")
	}()
	if diff := cmp.Diff([]string{"second"}, take(t, q, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestWaitingOOMsAreOne(t *testing.T) {
	q, a := newEventQueue(), newID("a")
	for range 3 {
		q.oom(a)
	}
	q.oom(newID("b"))
	if n := len(q.events); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
}
