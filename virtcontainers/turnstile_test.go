package virtcontainers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// Calls and hibernations exclude each other, however many of both there are, and
// each call passes in the end.
func TestTurnstile(t *testing.T) {
	var all turnstile
	var inside, wakes atomic.Int32
	all.wake = func() {
		wakes.Add(1)
		go func() {
			if n := inside.Load(); n != 0 {
				t.Errorf("%d calls to a sleeping guest", n)
			}
			all.open()
		}()
	}
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() {
			for range 200 {
				leave, err := all.enter(t.Context(), "a call")
				if err != nil {
					t.Error(err)
					return
				}
				inside.Add(1)
				if all.state != awake { // it cannot change meanwhile
					t.Errorf("a call passed while the state is %d", all.state)
				}
				inside.Add(-1)
				leave()
				leave() // does no harm
			}
		})
	}
	slept := 0
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	for running := true; running; {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := all.lock(ctx); err == nil {
			slept++
			fallsAsleep(t, &all)
		}
		cancel()
		select {
		case <-done:
			running = false
		default:
		}
	}
	if slept == 0 || int(wakes.Load()) > slept {
		t.Errorf("it slept %d times and was woken %d times", slept, wakes.Load())
	}
}

func TestTurnstileStates(t *testing.T) {
	woken := make(chan struct{}, 1)
	all := turnstile{wake: func() { woken <- struct{}{} }}
	leave, ok := all.tryEnter()
	if !ok {
		t.Fatal("it is not open at first")
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := all.lock(short); !errdefs.IsUnavailable(err) {
		t.Errorf("locked during a call: %v", err)
	}
	leave()
	if err := all.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := all.lock(t.Context()); !errdefs.IsUnavailable(err) {
		t.Errorf("locked while it falls asleep: %v", err)
	}
	if _, ok := all.tryEnter(); ok {
		t.Error("entered while it falls asleep")
	}
	fallsAsleep(t, &all)
	if err := all.lock(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("locked while it sleeps: %v", err)
	}
	if _, err := all.enter(short, "a call"); err == nil {
		t.Error("entered while it sleeps")
	}
	<-woken // by that call, although it has given up
	all.open()
	if leave, err := all.enter(t.Context(), "a call"); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}

// What can wait passes once the sandbox is awake. It does not have it woken.
func TestEnterAwake(t *testing.T) { synctest.Test(t, testEnterAwake) }

func testEnterAwake(t *testing.T) {
	all := turnstile{wake: func() { t.Error("woken") }}
	leave, err := all.enterAwake(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := all.lock(short); !errdefs.IsUnavailable(err) {
		t.Errorf("locked during what has passed: %v", err)
	}
	leave()
	if err := all.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	passed := make(chan error, 1)
	go func() {
		leave, err := all.enterAwake(t.Context())
		if err == nil {
			leave()
		}
		passed <- err
	}()
	synctest.Wait() // until it waits
	fallsAsleep(t, &all)
	if _, err := all.enterAwake(short); err == nil {
		t.Error("entered while it sleeps")
	}
	if len(passed) != 0 || closed(all.wanted) {
		t.Errorf("%d passed, the sandbox is wanted: %t", len(passed), closed(all.wanted))
	}
	all.open()
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func fallsAsleep(t *testing.T, all *turnstile) {
	t.Helper()
	if err := all.sleep(); err != nil {
		t.Error(err)
	}
}

// A sandbox that has ended does not sleep, whenever it began to, and holds no call.
func TestTurnstileOfEndedSandbox(t *testing.T) {
	all := turnstile{wake: func() { t.Error("woken") }}
	if err := all.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.end()
	if err := all.sleep(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("asleep: %v", err)
	}
	if err := all.lock(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("locked: %v", err)
	}
	leave, err := all.enter(t.Context(), "a call")
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if all.calls != 0 || all.waiting != 0 {
		t.Errorf("%d calls, %d wait", all.calls, all.waiting)
	}
}
