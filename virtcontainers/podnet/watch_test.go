package podnet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// lackingLinks are links whose first watches fail.
type lackingLinks struct {
	Links
	failures, watches int
}

func (l *lackingLinks) Watch(ctx context.Context, _ func() error) error {
	if l.watches++; l.watches <= l.failures {
		return unix.EMFILE
	}
	<-ctx.Done()
	return nil
}

// A pod whose namespace cannot be watched for a while, as without a free descriptor,
// follows it again.
func TestWatchOutlastsALack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		links := &lackingLinks{failures: 3}
		p := &Pod{links: links, gone: func() bool { return false }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.Watch(ctx, nil)
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if links.watches != 4 {
			t.Errorf("%d watches were begun, want 3 that fail and one more", links.watches)
		}
		cancel()
		<-ended
	})
}

// The end of a pod ends the wait for the next attempt.
func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pod{links: &lackingLinks{failures: 1 << 30}, gone: func() bool { return false }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour+time.Millisecond)
		defer cancel()
		p.Watch(ctx, nil)
		if ctx.Err() == nil {
			t.Error("it gave the watch up")
		}
	})
}

// Nor does a guest that is gone follow anything.
func TestWatchEndsWithTheGuest(t *testing.T) {
	links := &lackingLinks{failures: 1 << 30}
	(&Pod{links: links, gone: func() bool { return true }}).Watch(t.Context(), nil)
	if links.watches != 1 {
		t.Errorf("%d watches, want 1", links.watches)
	}
}
