package forward

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/guest"
)

const (
	// dialTimeout bounds connecting to the guest: longer than a busy guest
	// takes to answer, shorter than clients wait.
	dialTimeout = 10 * time.Second
	// acceptPause is the time until the next try when the process or the
	// host has no descriptor left.
	acceptPause = 100 * time.Millisecond
)

// serve accepts connections until the listener is closed.
func (f *Forwarder) serve(ctx context.Context, l *net.TCPListener) {
	for {
		client, err := l.AcceptTCP()
		switch {
		case err == nil:
			f.take(ctx, client)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			log.G(ctx).WithError(err).Debug("could not accept a connection to forward")
			pause(ctx, acceptPause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// take forwards one connection, unless there are too many.
func (f *Forwarder) take(ctx context.Context, client *net.TCPConn) {
	select {
	case f.slots <- struct{}{}:
	default:
		reset(client)
		log.G(ctx).Debugf("refused to forward a connection to %s: there are %d already", client.LocalAddr(), cap(f.slots))
		return
	}
	f.running.Go(func() {
		defer func() { <-f.slots }()
		f.forward(ctx, client)
	})
}

// forward serves one connection to its end.
func (f *Forwarder) forward(ctx context.Context, client *net.TCPConn) {
	far, err := f.connect(ctx, client.LocalAddr())
	if err != nil {
		reset(client) // as at a port without a listener, but a moment later
		log.G(ctx).WithError(err).Debug("could not forward a connection")
		return
	}
	if err := relay.Join(ctx, relay.TCP(client), far); err != nil {
		log.G(ctx).WithError(err).Debug("a forwarded connection ended")
	}
}

// reset closes a connection so that its peer gets a RST: with SO_LINGER 0
// (socket(7)).
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// connect dials in the guest what the client dialled. "localhost" has two
// addresses, and clients try the second when the first refuses. Our listener
// never refuses, so connect itself tries ::1 for a process that listens only
// there.
func (f *Forwarder) connect(ctx context.Context, wanted net.Addr) (guest.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	far, err := f.dial(ctx, wanted.String())
	if err == nil {
		return far, nil
	}
	other, ok := otherLocalhost(wanted)
	if !ok || ctx.Err() != nil {
		return nil, err
	}
	far, err6 := f.dial(ctx, other)
	if err6 != nil {
		return nil, errors.Join(err, err6)
	}
	return far, nil
}

// otherLocalhost returns ::1 with addr's port if addr is 127.0.0.1.
func otherLocalhost(addr net.Addr) (string, bool) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.AddrPort().Addr().Unmap() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return "", false
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), tcp.AddrPort().Port()).String(), true
}
