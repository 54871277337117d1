package monitor

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

const (
	// stalled is how long the reader of a killed process's output may take
	// nothing, and drainLimit how long it may take altogether. They are the shim's
	// (package stdio).
	stalled    = 2 * time.Second
	drainLimit = 30 * time.Second
)

// impatience says that the process's output has waited for its reader long enough: the
// process was ended by a signal, or gets one now. With runc its pid is gone then,
// whether its output was read or not.
type impatience struct {
	once sync.Once
	c    chan struct{}
}

func newImpatience() *impatience { return &impatience{c: make(chan struct{})} }

func (i *impatience) set() { i.once.Do(func() { close(i.c) }) }

// bySignal reports whether a process with that exit code was ended by a signal, as far
// as the code says it.
func bySignal(code uint32) bool { return code > 128 && code <= 128+64 }

// drain waits until the output of the process that has ended was passed on. It waits as
// long as the reader takes, but with impatience only while the reader reads.
func (s *session) drain() {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.giveUpStalled(ctx, cancel) })
	for _, r := range s.relays {
		if r.output {
			r.awaitQuiet(ctx, client.Quiet)
		}
	}
	cancel()
	watch.Wait()
}

// giveUpStalled calls giveUp when there is impatience and the reader has stalled.
func (s *session) giveUpStalled(ctx context.Context, giveUp context.CancelFunc) {
	select {
	case <-s.impatience.c:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	defer giveUp()
	for before := int64(-1); before != s.moved(); {
		before = s.moved()
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

// endsProcess reports whether a signal ends a process by default (signal(7)).
func endsProcess(sig unix.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH:
		return false
	}
	return true
}
