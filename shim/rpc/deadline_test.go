package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// The guest's "deadline exceeded" can come before the host's own deadline: the error
// names it nevertheless. A deadline that is far away is not waited for.
func TestGuestIsAheadOfTheDeadline(t *testing.T) {
	over := errors.New("create_container_timeout is over")
	early := fmt.Errorf("create: %w", context.DeadlineExceeded)
	for name, tt := range map[string]struct {
		within time.Duration
		err    error
		named  bool
	}{
		"near":          {100 * time.Millisecond, early, true},
		"far":           {time.Hour, early, false},
		"another error": {100 * time.Millisecond, errdefs.ErrInvalidArgument, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), tt.within, over)
			defer cancel()
			if err := WithCause(ctx, tt.err); errors.Is(err, over) != tt.named || !errors.Is(err, tt.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
