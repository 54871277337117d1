package monitor

import (
	"context"
	"sync"
	"time"

	"github.com/katabox/katabox/shim/client"
)

const (
	// stalled is how long the reader of a killed process's output may take
	// nothing, and drainLimit how long it may take altogether. They are the shim's
	// (package stdio).
	stalled    = 2 * time.Second
	drainLimit = 30 * time.Second
)

// EndLimit is how long a monitor may take to end when its process has ended and it gets
// a signal: its reader may take as long as it reads.
const EndLimit = drainLimit + 5*time.Second

// drain waits until the output of the process that has ended was passed on. It waits as
// long as the reader takes, but with impatience only while the reader reads.
func (s *session) drain() {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		if s.impatience.await(ctx) {
			awaitStall(ctx, s.moved)
			cancel()
		}
	})
	for _, r := range s.relays {
		if r.output {
			r.awaitQuiet(ctx, client.Quiet)
		}
	}
	cancel()
	watch.Wait()
}

// awaitStall waits until the reader has stalled: the number of bytes that have moved
// stays the same. It waits no longer than drainLimit, or until ctx ends.
func awaitStall(ctx context.Context, moved func() int64) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for before := int64(-1); before != moved(); {
		before = moved()
		select {
		case <-time.After(stalled):
		case <-ctx.Done():
			return
		}
	}
}

// moved is the number of bytes of output that was passed on.
func (s *session) moved() (sum int64) {
	for _, r := range s.relays {
		if r.output {
			sum += r.moved.Load()
		}
	}
	return sum
}
