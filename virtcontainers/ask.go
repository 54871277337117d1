package virtcontainers

import (
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

// ask has a question of an engine's put to the guest, within ctx and askTimeout.
func (s *Sandbox) ask(ctx context.Context, question func(context.Context) error) error {
	timeout := askTimeout
	if s.platform.Accel == hypervisor.AccelTCG {
		timeout = slowAskTimeout
	}
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := question(asked)
	if guest.Unanswered(asked, err) && ctx.Err() == nil {
		return fmt.Errorf("the guest did not answer within %v: %w", timeout, guest.Err(err))
	}
	return guest.Err(err)
}
