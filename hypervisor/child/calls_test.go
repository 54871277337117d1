package child

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func startThread(t *testing.T) *Thread {
	t.Helper()
	thread, err := StartThread(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return thread
}

func TestThreadIsOne(t *testing.T) {
	thread := startThread(t)
	ids := map[int]bool{}
	for range 3 {
		if err := thread.Do(t.Context(), func() error { ids[unix.Gettid()] = true; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) != 1 || ids[unix.Gettid()] {
		t.Errorf("threads %v ran it", ids)
	}
	failed := errors.New("failed")
	if err := thread.Do(t.Context(), func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	for range 2 {
		if err := thread.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := thread.Do(t.Context(), func() error { t.Error("it ran"); return nil }); !errors.Is(err, ErrThreadClosed) {
		t.Error(err)
	}
}

func TestThreadThatCannotStart(t *testing.T) {
	failed := errors.New("failed")
	if _, err := StartThread(func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// A call that hangs holds up neither Close nor the calls that wait.
func TestThreadHangs(t *testing.T) {
	thread := startThread(t)
	running, release := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	go func() {
		results <- thread.Do(t.Context(), func() error {
			close(running)
			<-release
			return nil
		})
	}()
	<-running
	go func() {
		results <- thread.Do(t.Context(), func() error { t.Error("it ran after Close"); return nil })
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := thread.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	for range 2 {
		if err := <-results; !errors.Is(err, ErrThreadClosed) {
			t.Errorf("Do: %v", err)
		}
	}
	close(release)
	if err := thread.Close(context.Background()); err != nil {
		t.Errorf("Close after the call has ended: %v", err)
	}
}

// A call waits no longer than its context for one that hangs.
func TestThreadIsOccupied(t *testing.T) {
	thread := startThread(t)
	release := make(chan struct{})
	ended, cancel := context.WithCancel(t.Context())
	go cancel()
	if err := thread.Do(ended, func() error { <-release; return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the call that hangs: %v", err)
	}
	if err := thread.Do(ended, func() error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the next call: %v", err)
	}
	close(release)
	if err := thread.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What a function uses is released once, when it has run, though its caller has
// given up, or when it will not run.
func TestRelease(t *testing.T) {
	thread := startThread(t)
	released := make(chan string, 8)
	release := func(what string) func() error {
		return func() error { released <- what; return nil }
	}
	if err := thread.Do(t.Context(), func() error { return nil }, release("ran"), release("ran")); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	goOn, runs := make(chan struct{}), make(chan struct{})
	go func() { <-runs; giveUp() }()
	if err := thread.Do(ctx, func() error { close(runs); <-goOn; return nil }, release("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that hangs: %v", err)
	}
	if err := thread.Do(ctx, func() error { t.Error("it runs"); return nil }, release("waited")); !errors.Is(err, context.Canceled) {
		t.Errorf("a call behind it: %v", err)
	}
	if got := len(released); got != 3 {
		t.Errorf("%d releases, want 3: the thread still runs", got)
	}
	close(goOn)
	if err := thread.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := thread.Do(t.Context(), func() error { t.Error("it runs"); return nil }, release("closed")); !errors.Is(err, ErrThreadClosed) {
		t.Errorf("a call of a closed thread: %v", err)
	}
	close(released)
	var got []string
	for what := range released {
		got = append(got, what)
	}
	if want := []string{"ran", "ran", "waited", "late", "closed"}; !slices.Equal(got, want) {
		t.Errorf("released %q, want %q", got, want)
	}
}

// A value goes to the caller, or to drop if the caller has given up.
func TestAsk(t *testing.T) {
	thread := startThread(t)
	dropped := make(chan int, 2)
	drop := func(n int) error { dropped <- n; return nil }
	if got, err := Ask(t.Context(), thread, func() (int, error) { return 1, nil }, drop); got != 1 || err != nil {
		t.Errorf("got %d, %v, want 1", got, err)
	}
	failed := errors.New("failed")
	if got, err := Ask(t.Context(), thread, func() (int, error) { return 2, failed }, drop); got != 0 || !errors.Is(err, failed) {
		t.Errorf("got %d, %v, want the error", got, err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	goOn, runs := make(chan struct{}), make(chan struct{})
	go func() { <-runs; giveUp() }()
	if got, err := Ask(ctx, thread, func() (int, error) { close(runs); <-goOn; return 3, nil }, drop); got != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("got %d, %v, want the context's error", got, err)
	}
	close(goOn)
	if err := thread.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(dropped)
	var got []int
	for n := range dropped {
		got = append(got, n)
	}
	if !slices.Equal(got, []int{3}) {
		t.Errorf("dropped %v, want the value that came late", got)
	}
}
