package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

// maxPath is the length of the longest path of a UNIX socket, in bytes.
const maxPath = 1024

// Sockets finds UNIX sockets in containers.
type Sockets interface {
	// DialSocket connects to a socket by its absolute path in a container. kind
	// is SOCK_STREAM or SOCK_SEQPACKET (socket(2)); a socket of another type is an
	// error. It fails soon after ctx ends; the connection outlives ctx. Its
	// error is sent to the host.
	DialSocket(ctx context.Context, containerID, path string, kind int) (*net.UnixConn, error)
}

// target is what the host wants to connect to.
type target struct {
	name string
	dial func(context.Context) (relay.HalfCloser, error)
}

// connect dials, bounded by dialTimeout.
func (t target) connect(ctx context.Context) (relay.HalfCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return t.dial(ctx)
}

// targetOf checks the host's request.
func (s *Server) targetOf(open *api.ForwardOpen) (target, error) {
	stream, packets := open.GetUnix(), open.GetUnixpacket()
	switch {
	case open.GetAddress() != "" || stream != nil && packets != nil:
	case stream != nil:
		return s.socket(stream, unix.SOCK_STREAM)
	case packets != nil:
		return s.socket(packets, unix.SOCK_SEQPACKET)
	}
	// Only numeric addresses: the guest's resolver would look up a name, with a
	// different result than on the host.
	address, err := netip.ParseAddrPort(open.GetAddress())
	if err != nil || address.Port() == 0 || address.Addr().Zone() != "" || stream != nil || packets != nil {
		return target{}, fmt.Errorf(`forward to %.100q: want an address and a port, as "127.0.0.1:80" or "[::1]:80", or a UNIX socket`, open.GetAddress())
	}
	return target{address.String(), func(ctx context.Context) (relay.HalfCloser, error) { return dialTCP(ctx, address) }}, nil
}

// socket is a UNIX socket in a container.
func (s *Server) socket(of *api.ContainerSocket, kind int) (target, error) {
	path := of.GetPath()
	if !strings.HasPrefix(path, "/") || len(path) > maxPath || strings.ContainsRune(path, 0) {
		return target{}, fmt.Errorf("forward to UNIX socket %.100q: want an absolute path of at most %d bytes", path, maxPath)
	}
	name := fmt.Sprintf("UNIX socket %s", path)
	return target{name, func(ctx context.Context) (relay.HalfCloser, error) {
		conn, err := s.Sockets.DialSocket(ctx, of.GetContainerId(), path, kind)
		if err != nil {
			return nil, err
		}
		if kind == unix.SOCK_SEQPACKET {
			return relay.Packets(conn), nil
		}
		return conn, nil
	}}, nil
}

func dialTCP(ctx context.Context, address netip.AddrPort) (relay.HalfCloser, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, err
	}
	port, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("got a %T", conn), conn.Close())
	}
	return relay.TCP(port), nil
}
