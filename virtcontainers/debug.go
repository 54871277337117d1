package virtcontainers

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// OpenDebug connects to the guest's debug console, on which guest.OpenDebug starts
// a process. It fails with errdefs.ErrFailedPrecondition unless the pod's
// configuration has debug_console_enabled.
func (s *Sandbox) OpenDebug(ctx context.Context) (*guest.DebugConsole, error) {
	if !s.opts.Config.Agent.DebugConsole {
		return nil, fmt.Errorf("sandbox %s was started without a debug console: set debug_console_enabled = true in [agent.kata] and start the pod anew: %w",
			s.ID, errdefs.ErrFailedPrecondition)
	}
	client, err := s.agent()
	if err != nil {
		return nil, err
	}
	return client.DialDebug(ctx)
}
