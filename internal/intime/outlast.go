package intime

import (
	"context"
	"time"
)

// Outlast returns a context that ends by after ctx, whether ctx is cancelled or its deadline
// passes. Its deadline is by after that of ctx, if ctx has one. The caller must call the
// function when the work is done.
func Outlast(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	after, release := context.WithoutCancel(ctx), func() {}
	if end, ok := ctx.Deadline(); ok {
		after, release = context.WithDeadline(after, end.Add(by))
	}
	after, cancel := context.WithCancelCause(after)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-after.Done():
		}
	})
	return after, func() {
		stop()
		cancel(context.Canceled)
		release()
	}
}
