package virtcontainers

import (
	"context"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/network"
)

// bell wakes a sandbox when packets come for it.
type bell struct {
	door *network.Doorbell
	rung chan struct{} // closed when it has rung
}

// listen begins to listen for packets, before the machine is paused: none is
// missed. When one comes the sandbox wakes, once it sleeps.
func (s *Sandbox) listen(ctx context.Context) (*bell, error) {
	door, err := s.network.Doorbell(ctx)
	if err != nil {
		return nil, err
	}
	b := &bell{door: door, rung: make(chan struct{})}
	go func() {
		if b.door.Wait(s.lifeCtx) != nil {
			return // the sandbox is awake, or has ended
		}
		close(b.rung)
		log.G(s.lifeCtx).Info("packets come for the sandbox")
		if leave, err := s.calls.enter(s.lifeCtx); err == nil {
			leave()
		}
	}()
	return b, nil
}

// rang reports whether packets have come.
func (b *bell) rang() bool { return closed(b.rung) }

func (b *bell) close() error {
	if b == nil {
		return nil
	}
	return b.door.Close()
}
