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
	all, from := turnstile{wakes: make(chan *slept, 1)}, new(slept)
	var inside, wakes atomic.Int32
	go func() {
		for range all.wakes {
			wakes.Add(1)
			if n := inside.Load(); n != 0 {
				t.Errorf("%d calls to a sleeping guest", n)
			}
			all.open()
		}
	}()
	defer close(all.wakes)
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
		if err := all.lock(ctx, from); err == nil {
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
	all, from := turnstile{wakes: make(chan *slept, 1)}, new(slept)
	leave, ok := all.tryEnter()
	if !ok {
		t.Fatal("it is not open at first")
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := all.lock(short, from); !errdefs.IsUnavailable(err) {
		t.Errorf("locked during a call: %v", err)
	}
	leave()
	if err := all.lock(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if err := all.lock(t.Context(), from); !errdefs.IsUnavailable(err) {
		t.Errorf("locked while it falls asleep: %v", err)
	}
	if h := all.hibernation(); h != nil {
		t.Errorf("it hibernates while it falls asleep: %+v", h)
	}
	if _, ok := all.tryEnter(); ok {
		t.Error("entered while it falls asleep")
	}
	fallsAsleep(t, &all)
	if err := all.lock(t.Context(), from); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("locked while it sleeps: %v", err)
	}
	if _, err := all.enter(short, "a call"); err == nil {
		t.Error("entered while it sleeps")
	}
	if woken := <-all.wakes; woken != from { // by that call, although it has given up
		t.Errorf("it is woken from %p, want %p", woken, from)
	}
	if all.hibernation() != &from.Hibernation {
		t.Error("it does not hibernate while it wakes")
	}
	all.open()
	if h := all.hibernation(); h != nil {
		t.Errorf("it hibernates while it is awake: %+v", h)
	}
	if leave, err := all.enter(t.Context(), "a call"); err != nil {
		t.Error(err)
	} else {
		leave()
	}
}

// What can wait passes once the sandbox is awake. It does not have it woken.
func TestEnterAwake(t *testing.T) { synctest.Test(t, testEnterAwake) }

func testEnterAwake(t *testing.T) {
	all := turnstile{wakes: make(chan *slept, 1)}
	leave, err := all.enterAwake(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := all.lock(short, new(slept)); !errdefs.IsUnavailable(err) {
		t.Errorf("locked during what has passed: %v", err)
	}
	leave()
	if err := all.lock(t.Context(), new(slept)); err != nil {
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
	if len(passed) != 0 || closed(all.wanted) || len(all.wakes) != 0 {
		t.Errorf("%d passed, the sandbox is wanted: %t, is woken: %t", len(passed), closed(all.wanted), len(all.wakes) != 0)
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
	all := turnstile{wakes: make(chan *slept, 1)}
	if err := all.lock(t.Context(), new(slept)); err != nil {
		t.Fatal(err)
	}
	if from := all.end(); from != nil {
		t.Error("what is used to fall asleep was taken from its user")
	}
	if err := all.sleep(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("asleep: %v", err)
	}
	all.open()
	if err := all.lock(t.Context(), new(slept)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("locked: %v", err)
	}
	leave, err := all.enter(t.Context(), "a call")
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if all.calls != 0 || all.waiting != 0 || len(all.wakes) != 0 {
		t.Errorf("%d calls, %d wait, %d wake it", all.calls, all.waiting, len(all.wakes))
	}
}

// What a sandbox would be woken from is its end's if it sleeps, and only once.
func TestTurnstileOfSleepingSandboxThatEnds(t *testing.T) {
	all, from := turnstile{wakes: make(chan *slept, 1)}, new(slept)
	if err := all.lock(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	fallsAsleep(t, &all)
	if got := all.end(); got != from {
		t.Errorf("the end got %p, want %p", got, from)
	}
	if h := all.hibernation(); h != nil {
		t.Errorf("it has ended and hibernates: %+v", h)
	}
	if got := all.end(); got != nil {
		t.Error("the end got it twice")
	}
}
