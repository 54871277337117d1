package pci

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// Timeout bounds the wait for a device that is not there yet. One that is
	// plugged into a running guest takes about 0.1 s; a loaded host gets more.
	Timeout = 10 * time.Second
	// Poll is the time between two looks.
	Poll = 10 * time.Millisecond
)

// ErrLate is the end of the wait.
var ErrLate = fmt.Errorf("it did not come within %v", Timeout)

// WithTimeout gives devices their time to come: ctx ends after Timeout with
// the cause ErrLate.
func WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, Timeout, ErrLate)
}

// Await calls look until it answers with another error than
// errdefs.ErrNotFound, or with none, and returns that answer. When ctx is done
// before, the error is ctx's cause and look's last one.
func Await[T any](ctx context.Context, look func() (T, error)) (T, error) {
	poll := time.NewTicker(Poll)
	defer poll.Stop()
	for {
		found, err := look()
		if err == nil || !errors.Is(err, errdefs.ErrNotFound) {
			return found, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return found, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
