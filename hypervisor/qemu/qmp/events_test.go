package qmp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/katabox/katabox/hypervisor/qemu/internal/qmptest"
)

func TestSlowSubscriberIsToldAndHarmsNobody(t *testing.T) {
	h := newHub()
	slow, quick := h.subscribe(t.Context()), h.subscribe(t.Context())
	const n = MaxQueuedEvents + 100
	for range n {
		h.publish(Event{Event: "X"}, 10)
		<-quick.C()
	}
	h.close()
	got := 0
	for range slow.C() {
		got++
	}
	if !errors.Is(slow.Err(), errSlowSubscriber) || got < MaxQueuedEvents || got >= n {
		t.Errorf("slow subscriber got %d events, Err %v", got, slow.Err())
	}
	if _, ok := <-quick.C(); ok || quick.Err() != nil {
		t.Errorf("quick subscriber: open %v, Err %v", ok, quick.Err())
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	s := newSubscription()
	for i, want := range []bool{true, true, false, false} {
		if got := s.push(queuedEvent{size: maxQueuedBytes / 2}); got != want {
			t.Errorf("event %d was taken: %v", i, got)
		}
	}
	if !errors.Is(s.Err(), errSlowSubscriber) {
		t.Errorf("Err: %v", s.Err())
	}
}

func TestEarlyEventsAreBounded(t *testing.T) {
	h := newHub()
	for range MaxQueuedEvents + 5 {
		h.publish(Event{Event: "OLD"}, 1)
	}
	h.publish(Event{Event: "SHUTDOWN"}, 1)
	h.close()
	var n int
	var last Event
	for ev := range h.subscribe(t.Context()).C() {
		n, last = n+1, ev
	}
	if n != MaxQueuedEvents || last.Event != "SHUTDOWN" {
		t.Errorf("%d events, the last is %s", n, last.Event)
	}
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, server := qmptest.Pipe(t)
		m := New(conn)
		defer m.Disconnect()
		go server.Handshake()
		if err := m.Connect(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		idle, busy := m.Subscribe(ctx), m.Subscribe(ctx)
		server.Send(qmptest.Event("X", nil))
		<-idle.C()
		synctest.Wait() // busy has an event that is not received
		cancel()
		synctest.Wait()
		if len(m.hub.subs) != 0 {
			t.Errorf("%d subscriptions are left", len(m.hub.subs))
		}
		for range busy.C() {
			t.Error("an event after the end")
		}
		if _, ok := <-idle.C(); ok {
			t.Error("an event after the end")
		}
	})
}
