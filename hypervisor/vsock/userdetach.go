package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/containerd/log"

	"github.com/katabox/katabox/hypervisor"
)

// Detach implements Transport. The next device is there before the machine loses
// this one, so that nothing can fail afterwards.
func (t *userTransport) Detach(ctx context.Context, vm hypervisor.Detacher) error {
	old, err := t.beginDetach()
	if err != nil {
		return fmt.Errorf("detach vsock: %w", err)
	}
	defer t.endDetach()
	next, err := t.serve()
	if err != nil {
		return fmt.Errorf("detach vsock: %w", err)
	}
	old.dev.leaving.Store(true)
	if err := detachFrom(ctx, vm); err != nil {
		old.dev.leaving.Store(false)
		return errors.Join(fmt.Errorf("detach vsock: %w", err), next.stop(next.front))
	}
	// The front end has gone, and this waits until the back end knows it.
	err = old.stop(nil)
	if !t.adopt(next) {
		return errors.Join(fmt.Errorf("detach vsock: %w", net.ErrClosed), next.stop(next.front))
	}
	return err
}

// detachFrom removes the device. What the VMM has left of it is no error: it goes
// when the machine gets its next device.
func detachFrom(ctx context.Context, vm hypervisor.Detacher) error {
	err := vm.Detach(ctx, DeviceID)
	if errors.Is(err, hypervisor.ErrLeftover) {
		log.G(ctx).WithError(err).Warn("vsock device was not removed completely")
		return nil
	}
	return err
}

func (t *userTransport) beginDetach() (*served, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, net.ErrClosed
	case t.detached != nil:
		return nil, errDetaching
	case t.now.front != nil:
		return nil, errNotAttached
	}
	t.detached = make(chan struct{})
	return t.now, nil
}

func (t *userTransport) endDetach() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.detached)
	t.detached = nil
}

// adopt makes a device the transport's. It returns false after Close.
func (t *userTransport) adopt(next *served) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	next.dev.held.Store(t.now.dev.held.Load())
	t.now = next
	return true
}
