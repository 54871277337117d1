package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// maxConnections bounds the simultaneous connections of one Socket,
	// including those that are being dialled. Each costs two goroutines, two
	// descriptors and two blocks; with messages, up to two of the longest
	// (relay.MaxPacket) more.
	maxConnections = 128
	// dialTimeout bounds connecting to the guest.
	dialTimeout = 10 * time.Second
	// acceptPause is the time until the next try when the process or the
	// host has no descriptor left.
	acceptPause = 100 * time.Millisecond
)

// DialFunc connects to what a Socket stands for in the guest. It must fail
// soon after ctx ends; the connection outlives ctx.
type DialFunc func(ctx context.Context) (guest.Conn, error)

// Place is the path and the type of a Socket.
type Place struct {
	// Path is short enough for an address (unix(7): 107 bytes).
	Path string
	// Seqpacket makes it SOCK_SEQPACKET instead of SOCK_STREAM. On DialFunc's
	// connection each message is then preceded by its length (relay.Packets).
	Seqpacket bool
}

// Socket is a UNIX socket on the host whose connections go to the guest. A
// connection that the guest refuses, or that exceeds the limit, is closed after
// it was accepted.
type Socket struct {
	dial      DialFunc
	listener  *net.UnixListener
	seqpacket bool
	slots     chan struct{} // holds one element for each connection
	running   sync.WaitGroup
	cancel    context.CancelFunc
}

// Listen makes the socket, for this process's user alone, and begins to
// forward. No other user may have access to the directory, because the socket's
// mode is set after it was made. ctx's values are kept for logs; its end is
// ignored: the Socket lives until Close. It is an error if the path exists
// (EADDRINUSE).
func Listen(ctx context.Context, at Place, dial DialFunc) (*Socket, error) {
	network := "unix"
	if at.Seqpacket {
		network = "unixpacket"
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: at.Path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("listen for connections to the guest: %w", err)
	}
	if err := os.Chmod(at.Path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for connections to the guest: %w", err), l.Close())
	}
	s := &Socket{dial: dial, listener: l, seqpacket: at.Seqpacket, slots: make(chan struct{}, maxConnections)}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.serve(ctx) })
	return s, nil
}

// Close removes the socket, ends every connection, cancels dials under way, and
// waits for all of them. It may be called again.
func (s *Socket) Close() error {
	s.cancel()
	err := s.listener.Close() // removes the file
	s.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close UNIX socket: %w", err)
	}
	return nil
}

// serve accepts connections until the listener is closed.
func (s *Socket) serve(ctx context.Context) {
	for {
		client, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.take(ctx, client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			log.G(ctx).WithError(err).Debug("could not accept a connection to a container's socket")
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// take forwards one connection, unless there are too many.
func (s *Socket) take(ctx context.Context, client *net.UnixConn) {
	select {
	case s.slots <- struct{}{}:
	default:
		_ = client.Close()
		log.G(ctx).Debugf("refused a connection to %s: there are %d already", s.listener.Addr(), cap(s.slots))
		return
	}
	s.running.Go(func() {
		defer func() { <-s.slots }()
		if err := s.forward(ctx, client); err != nil {
			log.G(ctx).WithError(err).Debug("a connection to a container's socket ended")
		}
	})
}

// forward serves one connection to its end.
func (s *Socket) forward(ctx context.Context, client *net.UnixConn) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	far, err := s.dial(dialCtx)
	cancel()
	if err != nil {
		return errors.Join(err, client.Close())
	}
	if s.seqpacket {
		return relay.Join(ctx, relay.Packets(client), far)
	}
	return relay.Join(ctx, client, far)
}
