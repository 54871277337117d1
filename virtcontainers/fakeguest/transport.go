package fakeguest

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// transport connects to the agent by socket pairs.
type transport struct {
	agent *Agent

	mu     sync.Mutex // guards closed
	closed bool
}

// Kind implements virtcontainers.Transport.
func (t *transport) Kind() string { return "fake" }

// Attach implements virtcontainers.Transport.
func (t *transport) Attach(ctx context.Context, vm hypervisor.Attacher) error {
	return vm.Attach(ctx, hypervisor.VhostVsock{ID: vsock.DeviceID, CID: 3})
}

// Detach implements virtcontainers.Transport.
func (t *transport) Detach(ctx context.Context, vm hypervisor.Detacher) error {
	if err := vm.Detach(ctx, vsock.DeviceID); err != nil {
		return err
	}
	t.agent.endLog()
	t.agent.mu.Lock()
	defer t.agent.mu.Unlock()
	for conn := range t.agent.conns {
		// The agent reads the end, and closes them itself.
		_, _ = conn.CloseWrite(), conn.CloseRead()
	}
	return nil
}

// Dial implements virtcontainers.Transport.
func (t *transport) Dial(ctx context.Context, port uint32) (guest.Conn, error) {
	if t.isClosed() {
		return nil, fmt.Errorf("dial port %d: %w", port, net.ErrClosed)
	}
	return t.agent.Dial(ctx, port)
}

// Hold implements virtcontainers.Transport. A pause ends no connection here.
func (t *transport) Hold(bool) {}

// Close implements virtcontainers.Transport.
func (t *transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.agent.Die()
	return nil
}

func (t *transport) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// SocketPair makes a connection; each side can be half-closed.
func SocketPair() (host, guest *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket pair: %w", err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "vsock")
		conn, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("make socket pair: %w", err)
		}
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1], nil
}
