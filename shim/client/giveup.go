package client

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// giveUpPause is the time between two looks at a shim that gives up a call.
const giveUpPause = 50 * time.Millisecond

// Reconnected calls f with a new connection to the shim whose address is in the
// bundle, and closes it. It reports whether there is no shim any more; f is not called
// then.
func Reconnected(ctx context.Context, dir string, f func(*Shim) error) (gone bool, err error) {
	shim, err := Connect(ctx, dir)
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer shim.Close()
	return false, f(shim)
}

// UntilGone ends a shim that may still work on a cancelled call, such as the creation
// of its first container: the shim gives that up once its connection is closed, which
// the caller has done. destroy is to remove the container, which may not exist yet or
// any more, and to shut the shim down. UntilGone calls it over new connections until
// there is no shim any more, it fails, or ctx ends.
func UntilGone(ctx context.Context, dir string, destroy func(*Shim) error) error {
	for {
		gone, err := Reconnected(ctx, dir, destroy)
		if err != nil || gone {
			return err
		}
		select {
		case <-time.After(giveUpPause):
		case <-ctx.Done():
			return fmt.Errorf("wait until the shim has given up: %w", context.Cause(ctx))
		}
	}
}
