package virtcontainers

import "context"

// inTime calls f, which may hang with a disk, and waits for it no longer than ctx. A
// result that comes later is given to drop.
func inTime[T any](ctx context.Context, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	answer := make(chan result)
	go func() {
		value, err := f()
		select {
		case answer <- result{value, err}:
		case <-ctx.Done():
			if err == nil {
				drop(value) // the caller has gone
			}
		}
	}()
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
