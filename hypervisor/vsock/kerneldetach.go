package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/katabox/katabox/hypervisor"
)

// Detach implements Transport. The machine's duplicate of the file is the last
// one: when the VMM closes it, the kernel resets what the guest has not closed
// (drivers/vhost/vsock.c, vhost_vsock_reset_orphans), and frees the context id.
// Another is claimed before that, so that nothing can fail afterwards.
func (t *kernelTransport) Detach(ctx context.Context, vm hypervisor.Detacher) error {
	if err := t.beginDetach(); err != nil {
		return fmt.Errorf("detach vsock: %w", err)
	}
	file, cid, err := t.claim()
	if err == nil {
		if err = detachFrom(ctx, vm); err != nil {
			_ = file.Close()
		}
	}
	if err != nil {
		t.endDetach(nil, 0)
		return fmt.Errorf("detach vsock: %w", err)
	}
	if !t.endDetach(file, cid) {
		return errors.Join(fmt.Errorf("detach vsock: %w", net.ErrClosed), file.Close())
	}
	return nil
}

func (t *kernelTransport) beginDetach() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return net.ErrClosed
	case t.detaching:
		return errDetaching
	case t.file != nil:
		return errNotAttached
	}
	t.detaching = true
	return nil
}

// endDetach makes a file, if there is one, the next device. It returns false
// after Close.
func (t *kernelTransport) endDetach(file *os.File, cid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.detaching = false
	if file != nil && !t.ended {
		t.file, t.cid = file, cid
	}
	return !t.ended
}

func (t *kernelTransport) currentCID() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cid
}

// isDetached reports whether a context id is, or is about to be, no longer the
// machine's.
func (t *kernelTransport) isDetached(cid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.detaching || t.cid != cid
}
