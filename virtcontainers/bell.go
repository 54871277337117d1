package virtcontainers

import (
	"context"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/network"
)

// listen begins to listen for packets, before the machine is paused: none is
// missed. The first one wakes the sandbox, or ends its falling asleep, as a call
// would.
func (s *Sandbox) listen(ctx context.Context) (*network.Doorbell, error) {
	bell, err := s.network.Doorbell(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		if bell.Wait(s.lifeCtx) != nil {
			return // the sandbox is awake, or has ended
		}
		log.G(s.lifeCtx).Debug("packets come for the sandbox")
		if leave, err := s.sleeper.enter(s.lifeCtx, "packets"); err == nil {
			leave()
		}
	}()
	return bell, nil
}
