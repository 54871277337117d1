package child

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/katabox/katabox/internal/ownthread"
)

// ErrThreadClosed is what Do returns after Close.
var ErrThreadClosed = errors.New("the thread has been closed")

// Thread is a dedicated thread (ownthread.Go) that runs functions, one at a time.
// Its methods may be called from several goroutines.
type Thread struct {
	calls chan func()
	// quit is closed by the first Close, ended when the thread has ended.
	quit, ended chan struct{}
	// abandoned is closed when Close has given up waiting for a function.
	abandoned    chan struct{}
	closing, end sync.Once
}

// StartThread starts a thread that first runs setUp, and ends if that fails.
func StartThread(setUp func() error) (*Thread, error) {
	t := &Thread{calls: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{}), abandoned: make(chan struct{})}
	started := make(chan error, 1)
	ownthread.Go(func() {
		defer close(t.ended)
		err := setUp()
		started <- err
		if err == nil {
			t.serve()
		}
	})
	if err := <-started; err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Thread) serve() {
	for {
		select {
		case call := <-t.calls:
			call()
		case <-t.quit:
			return
		}
	}
}

// Do runs f on the thread and returns its error. It waits for the functions
// before it, and for f, within ctx and until Close stops waiting. After an error of
// ctx, or ErrThreadClosed, f may still be running. So release must close the files
// that f uses: it is called once f has returned, or if f will not run.
func (t *Thread) Do(ctx context.Context, f func() error, release ...func() error) error {
	result := make(chan error, 1)
	if err := t.pass(ctx, func() { result <- errors.Join(f(), all(release)) }); err != nil {
		return errors.Join(err, all(release))
	}
	select {
	case err := <-result:
		return err
	case <-t.abandoned:
		return fmt.Errorf("%w while a call hung", ErrThreadClosed)
	case <-ctx.Done():
		return fmt.Errorf("a call hangs in the kernel: %w", context.Cause(ctx))
	}
}

// Ask runs f on the thread as Do does, and returns its value. A value that comes
// after the caller has given up goes to drop, on the thread, and so does one whose
// release fails, on the caller's.
func Ask[T any](ctx context.Context, t *Thread, f func() (T, error), drop func(T) error, release ...func() error) (value T, err error) {
	values := make(chan T, 1)
	var settled atomic.Bool // by the thread with a value, or by giving it up
	err = t.Do(ctx, func() error {
		v, err := f()
		if err != nil {
			return err
		}
		values <- v
		if !settled.CompareAndSwap(false, true) {
			return drop(<-values)
		}
		return nil
	}, release...)
	switch {
	case err == nil:
		value = <-values
	case !settled.CompareAndSwap(false, true):
		err = errors.Join(err, drop(<-values))
	}
	return value, err
}

// pass has the thread run call. On an error it does not run it.
func (t *Thread) pass(ctx context.Context, call func()) error {
	select {
	case <-t.quit: // even if the thread is still there
		return ErrThreadClosed
	default:
	}
	select {
	case t.calls <- call:
		return nil
	case <-t.quit:
		return ErrThreadClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for a thread that is occupied: %w", context.Cause(ctx))
	}
}

// all calls functions, and returns their errors.
func all(functions []func() error) error {
	var errs []error
	for _, f := range functions {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Close ends the thread once it has run the current function, and waits for its
// end as long as ctx allows. If a function hangs in the kernel, Close and Do
// return, and the thread stays until that call ends. Close may be called again.
func (t *Thread) Close(ctx context.Context) error {
	t.closing.Do(func() { close(t.quit) })
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		t.end.Do(func() { close(t.abandoned) })
		return fmt.Errorf("end a thread that hangs in the kernel: %w", context.Cause(ctx))
	}
}
