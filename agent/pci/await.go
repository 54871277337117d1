package pci

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

const (
	// Timeout bounds the wait for a device that does not exist yet. One that is
	// hot-plugged takes about 0.1 s, longer on a loaded host.
	Timeout = 10 * time.Second
	// Poll is the time between two looks.
	Poll = 10 * time.Millisecond
)

// ErrLate means that the device did not appear in time.
var ErrLate = fmt.Errorf("it did not come within %v", Timeout)

// WithTimeout bounds the wait for devices: ctx ends after Timeout with the
// cause ErrLate.
func WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, Timeout, ErrLate)
}

// Await calls look until it returns nil or an error other than
// errdefs.ErrNotFound, and returns that result. If ctx is done first, the error
// has ctx's cause and look's last error.
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
