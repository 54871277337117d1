package child

import (
	"context"
	"errors"
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
