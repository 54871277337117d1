package qemu

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// resize runs change towards a size, one call at a time, and returns the
// resulting size, for which count asks QEMU: that is more reliable than adding
// up what was done.
func resize[T any](ctx context.Context, vm *VM, what string, change func(context.Context) error, count func(context.Context) (T, error)) (T, error) {
	var none T
	if err := vm.sizing.Lock(ctx); err != nil {
		return none, fmt.Errorf("%s %s: wait for a concurrent change: %w", what, vm.id, err)
	}
	defer vm.sizing.Unlock()
	err := vm.running()
	if err == nil {
		err = change(ctx)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	now, countErr := count(after)
	if err = errors.Join(err, countErr); err != nil {
		return now, vm.explain(ctx, what, err)
	}
	return now, nil
}

// running fails until the machine has run.
func (vm *VM) running() error {
	select {
	case <-vm.ticks:
		return nil
	default:
		return fmt.Errorf("the machine has not run yet: %w", errdefs.ErrFailedPrecondition)
	}
}
