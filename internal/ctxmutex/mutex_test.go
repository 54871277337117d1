package ctxmutex_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/katabox/katabox/internal/ctxmutex"
)

func TestExcludes(t *testing.T) {
	m, n := ctxmutex.New(), 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := m.Lock(t.Context()); err != nil {
					t.Error(err)
					return
				}
				n++
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 800 {
		t.Errorf("counted to %d, want 800", n)
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	m := ctxmutex.New()
	if !m.TryLock() {
		t.Fatal("a new mutex is locked")
	}
	why := errors.New("the pod has ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error)
	go func() { got <- m.Lock(ctx) }()
	cancel(why)
	if err := <-got; !errors.Is(err, why) {
		t.Errorf("Lock: %v, want the context's cause", err)
	}
	m.Unlock()
	if !m.TryLock() {
		t.Error("the waiter whose context ended holds the mutex")
	}
}

func TestUnlockOfAnUnlockedMutex(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	ctxmutex.New().Unlock()
}
