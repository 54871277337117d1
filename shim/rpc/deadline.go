package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// Within bounds a call by a setting, which the context's cause names.
func Within(ctx context.Context, setting string, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s of %v is over", setting, limit))
}

// deadlineSkew is how much earlier than a call's deadline the guest may see it over.
const deadlineSkew = time.Second

// WithCause adds to a call's error why its context has ended: the guest's "deadline
// exceeded" does not say whose deadline. The guest knows the deadline and can be a
// moment ahead, so WithCause waits for it then, up to deadlineSkew.
func WithCause(ctx context.Context, err error) error {
	if until, ok := ctx.Deadline(); ok && errdefs.IsDeadlineExceeded(err) && time.Until(until) < deadlineSkew {
		<-ctx.Done()
	}
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
