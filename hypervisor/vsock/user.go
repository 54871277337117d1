package vsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// userTransport is our own device, served to one front end.
type userTransport struct {
	dev    *device
	cancel context.CancelFunc
	served chan struct{} // closed when the server has ended

	mu    sync.Mutex
	front *os.File // nil once given away
}

var _ Transport = (*userTransport)(nil)

// openUser starts to serve a device on one end of a socket pair.
func openUser(ctx context.Context) (Transport, error) {
	back, front, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make vhost-user sockets: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &userTransport{
		dev:    newDevice(ctx),
		cancel: cancel,
		served: make(chan struct{}),
		front:  front,
	}
	go func() {
		defer close(t.served)
		t.dev.ended(vhostuser.Serve(ctx, back, t.dev))
	}()
	return t, nil
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

func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	front := os.NewFile(uintptr(fds[1]), "vhost-user front end")
	file := os.NewFile(uintptr(fds[0]), "vhost-user back end")
	conn, err := net.FileConn(file) // makes a duplicate
	err = errors.Join(err, file.Close())
	back, ok := conn.(*net.UnixConn)
	if err != nil || !ok {
		return nil, nil, errors.Join(fmt.Errorf("wrap socket: %w", err), front.Close())
	}
	return back, front, nil
}

// Kind implements Transport.
func (t *userTransport) Kind() string { return KindVhostUser }

// Attach implements Transport.
func (t *userTransport) Attach(ctx context.Context, vm hypervisor.Attacher) error {
	t.mu.Lock()
	front := t.front
	t.front = nil
	t.mu.Unlock()
	if front == nil {
		return errors.New("attach vsock: already attached or closed")
	}
	if owner := hypervisor.OwnerOf(vm); owner != nil {
		t.dev.owner.Store(&owner)
	}
	err := vm.Attach(ctx, hypervisor.VhostUserVsock{ID: DeviceID, Socket: front})
	if err = errors.Join(err, front.Close()); err != nil {
		return fmt.Errorf("attach vsock: %w", err)
	}
	return nil
}

// Dial implements Transport.
func (t *userTransport) Dial(ctx context.Context, port uint32) (Conn, error) {
	return t.dev.dial(ctx, port)
}

// Hold implements Transport.
func (t *userTransport) Hold(paused bool) { t.dev.held.Store(paused) }

// Close implements Transport.
func (t *userTransport) Close() error {
	t.mu.Lock()
	front := t.front
	t.front = nil
	t.mu.Unlock()
	t.dev.shut(net.ErrClosed)
	t.cancel()
	<-t.served
	if front == nil {
		return nil
	}
	return front.Close()
}
