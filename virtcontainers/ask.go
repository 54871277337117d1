package virtcontainers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// Engines ask about all tasks one after the other: containerd for their processes when
// it starts, and for their statistics whenever the kubelet wants those of the node. A
// guest that does not answer must not hold up the answers about other pods.

const (
	// askTimeout bounds such a question, whatever the engine's deadline. It takes the
	// agent milliseconds.
	askTimeout = 2 * time.Second
	// slowAskTimeout is askTimeout for a guest under TCG on a busy host.
	slowAskTimeout = 5 * time.Second
)

// asking returns a context for a question of an engine's to the guest.
func (s *Sandbox) asking(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := askTimeout
	if s.platform.Accel == hypervisor.AccelTCG {
		timeout = slowAskTimeout
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the guest did not answer within %v: %w", timeout, context.DeadlineExceeded))
}

// answerErr is the error of a question that was asked with ctx.
func answerErr(ctx context.Context, err error) error {
	if guest.Unanswered(ctx, err) {
		return cmp.Or(context.Cause(ctx), err)
	}
	return guest.Err(err)
}
