package vsock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"

	"github.com/mdlayher/socket"
	mdvsock "github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// dialKernelReserved connects from a reserved port, which mdlayher/vsock cannot.
func dialKernelReserved(ctx context.Context, cid, port uint32) (Conn, error) {
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, network, nil)
	if err != nil {
		return nil, fmt.Errorf("open vsock socket: %w", err)
	}
	local, err := bindReserved(c.Bind)
	if err == nil {
		_, err = c.Connect(ctx, &unix.SockaddrVM{CID: cid, Port: port})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return reservedConn{
		Conn:   c,
		local:  &mdvsock.Addr{ContextID: mdvsock.Host, Port: local},
		remote: &mdvsock.Addr{ContextID: cid, Port: port},
	}, nil
}

// mayReserve fails with syscall.EACCES if this process may not use reserved ports.
func mayReserve() error {
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, network, nil)
	if err != nil {
		return fmt.Errorf("open vsock socket: %w", err)
	}
	_, err = bindReserved(c.Bind)
	return errors.Join(err, c.Close())
}

// bindReserved binds to a free reserved port and returns it. It starts at a random
// one: a port stays taken for some seconds after its connection was closed.
func bindReserved(bind func(unix.Sockaddr) error) (uint32, error) {
	const first = 1
	const ports = ReservedPorts - first
	start := rand.Uint32N(ports)
	for i := range uint32(ports) {
		port := first + (start+i)%ports
		err := bind(&unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port})
		if err == nil {
			return port, nil
		}
		if errors.Is(err, syscall.EACCES) {
			return 0, fmt.Errorf("bind to vsock port %d: the shim needs CAP_NET_BIND_SERVICE in the host's initial user namespace: %w", port, err)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("bind to vsock port %d: %w", port, err)
		}
	}
	return 0, fmt.Errorf("bind to a vsock port below %d: all are in use: %w", ReservedPorts, syscall.EADDRINUSE)
}

// reservedConn is a connection from a reserved port.
type reservedConn struct {
	*socket.Conn
	local, remote *mdvsock.Addr
}

// LocalAddr implements net.Conn.
func (c reservedConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c reservedConn) RemoteAddr() net.Addr { return c.remote }
