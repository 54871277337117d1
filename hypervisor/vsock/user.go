package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// userTransport is our own device, served to one front end after another.
type userTransport struct {
	// serve makes a device that is served.
	serve func() (*served, error)

	mu  sync.Mutex // guards what follows
	now *served
	// detached is closed when the Detach in progress has ended; nil without one.
	detached chan struct{}
	closed   bool
}

// served is a device that is served until stop.
type served struct {
	dev    *device
	front  *os.File // nil once given away; guarded by the transport's mu
	cancel context.CancelFunc
	ended  chan struct{} // closed when the server has ended
}

var _ Transport = (*userTransport)(nil)

// openUser starts to serve a device. ctx carries the logger.
func openUser(ctx context.Context) (Transport, error) {
	ctx = context.WithoutCancel(ctx)
	t := &userTransport{serve: func() (*served, error) { return serveDevice(ctx) }}
	first, err := t.serve()
	if err != nil {
		return nil, err
	}
	t.now = first
	return t, nil
}

// serveDevice serves a new device on one end of a socket pair.
func serveDevice(ctx context.Context) (*served, error) {
	back, front, err := child.Socket("vhost-user-vsock")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &served{dev: newDevice(ctx), front: front, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.dev.ended(vhostuser.Serve(ctx, back, s.dev))
	}()
	return s, nil
}

// stopWait is how long stop waits for a device to end. That depends on nothing
// but this process, unless a hostile VMM makes a call wait.
const stopWait = 5 * time.Second

// stop ends the device; front is its front end's side if it was not given away.
func (s *served) stop(front *os.File) error {
	s.cancel()
	select {
	case <-s.ended:
	case <-time.After(stopWait):
		s.dev.logger.Warnf("vsock device has not ended after %v; it is left behind", stopWait)
		s.dev.shut(ErrGone)
	}
	if front == nil {
		return nil
	}
	return front.Close()
}

// ended is called with the reason when the device is no longer served.
func (d *device) ended(reason error) {
	if reason == nil {
		d.shut(ErrGone)
		return
	}
	if !errors.Is(reason, context.Canceled) {
		d.logger.WithError(reason).Warn("vsock device ended")
	}
	d.shut(fmt.Errorf("%w: %w", ErrGone, reason))
}

// Kind implements Transport.
func (t *userTransport) Kind() string { return KindVhostUser }

// Attach implements Transport.
func (t *userTransport) Attach(ctx context.Context, vm hypervisor.Attacher) error {
	t.mu.Lock()
	dev, front := t.now.dev, t.now.front
	t.now.front = nil
	t.mu.Unlock()
	if front == nil {
		return errors.New("attach vsock: already attached or closed")
	}
	if owner := hypervisor.OwnerOf(vm); owner != nil {
		dev.owner.Store(&owner)
	}
	err := vm.Attach(ctx, hypervisor.VhostUserVsock{ID: DeviceID, Socket: front})
	if err = errors.Join(err, front.Close()); err != nil {
		return fmt.Errorf("attach vsock: %w", err)
	}
	return nil
}

// Dial implements Transport.
func (t *userTransport) Dial(ctx context.Context, port uint32) (Conn, error) {
	return t.dial(ctx, (*device).freePort, port)
}

// DialReserved implements Transport.
func (t *userTransport) DialReserved(ctx context.Context, port uint32) (Conn, error) {
	return t.dial(ctx, (*device).freeReservedPort, port)
}

// dial connects to the guest by the device that it has.
func (t *userTransport) dial(ctx context.Context, choose choosePort, port uint32) (Conn, error) {
	dev := t.device()
	for {
		c, err := dev.dial(ctx, choose, port)
		if !errors.Is(err, ErrGone) {
			return c, err
		}
		next := t.after(ctx, dev)
		if next == nil {
			return nil, err
		}
		dev = next
	}
}

func (t *userTransport) device() *device {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now.dev
}

// after returns the device that replaces one which has ended, nil if none does
// within ctx.
func (t *userTransport) after(ctx context.Context, old *device) *device {
	for ctx.Err() == nil {
		t.mu.Lock()
		now, detached := t.now.dev, t.detached
		t.mu.Unlock()
		switch {
		case now != old:
			return now
		case detached == nil:
			return nil
		}
		select {
		case <-detached:
		case <-ctx.Done():
		}
	}
	return nil
}

// Hold implements Transport.
func (t *userTransport) Hold(paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.dev.held.Store(paused)
}

// Close implements Transport.
func (t *userTransport) Close() error {
	t.mu.Lock()
	t.closed = true
	now, front := t.now, t.now.front
	t.now.front = nil
	t.mu.Unlock()
	now.dev.shut(net.ErrClosed)
	return now.stop(front)
}
