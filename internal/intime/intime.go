package intime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/containerd/errdefs"
)

// ErrUnanswered is the error of a call that did not return in time, and still runs.
var ErrUnanswered = errors.New("a file system of the host has not answered")

// mostGivenUp bounds the calls that were given up and have not ended, of the whole
// process: each keeps a thread, and Go's runtime ends a process with 10,000.
const mostGivenUp = 256

// givenUp counts them.
var givenUp atomic.Int64

// Call calls f and waits for it within ctx; then it fails with ErrUnanswered. If f returns
// later without an error, drop gets its value, unless drop is nil. f must not write to
// the caller's variables, nor use anything that the caller closes. If too many calls of
// this process hang, Call fails immediately with errdefs.ErrUnavailable.
func Call[T any](ctx context.Context, f func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if n := givenUp.Load(); n >= mostGivenUp {
		return none, fmt.Errorf("%d calls have not been answered by file systems of the host: %w", n, errdefs.ErrUnavailable)
	}
	answer := make(chan result)
	go func() {
		value, err := f()
		select {
		case answer <- result{value, err}:
		case <-ctx.Done(): // the caller has gone
			if err == nil && drop != nil {
				drop(value)
			}
			givenUp.Add(-1)
		}
	}()
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		givenUp.Add(1)
		return none, fmt.Errorf("%w: %w", ErrUnanswered, context.Cause(ctx))
	}
}

// Do is Call for an f without a value.
func Do(ctx context.Context, f func() error) error {
	_, err := Call(ctx, func() (struct{}, error) { return struct{}{}, f() }, nil)
	return err
}
