package reverse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/netns"
)

// dnsPort is the port of resolvers (resolv.conf(5) allows no other).
const dnsPort = 53

// Resolver forwards DNS queries to a loopback address of the guest, over UDP
// and TCP, to the same address in the pod's network namespace.
type Resolver struct {
	ns  *os.File
	udp *datagrams
	tcp *Listener
}

// OpenResolver starts to forward addr, an IPv4 loopback address on which a
// server listens in the network namespace at that path. It fails with
// errdefs.ErrNotFound if none does. ctx bounds the call; the Resolver lives
// until Close, and keeps the namespace alive.
func OpenResolver(ctx context.Context, open Opener, namespace string, addr netip.Addr) (*Resolver, error) {
	if !addr.Is4() || !addr.IsLoopback() {
		return nil, fmt.Errorf("forward resolver %s: want an address in 127.0.0.0/8: %w", addr, errdefs.ErrInvalidArgument)
	}
	ns, err := netns.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("forward resolver %s: %w", addr, err)
	}
	r := &Resolver{ns: ns}
	if err := r.start(ctx, open, addr); err != nil {
		return nil, errors.Join(fmt.Errorf("forward resolver %s of network namespace %s: %w", addr, namespace, err), r.Close())
	}
	return r, nil
}

func (r *Resolver) start(ctx context.Context, open Opener, addr netip.Addr) error {
	there, err := listens(r.ns, addr)
	if err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("nothing listens there: %w", errdefs.ErrNotFound)
	}
	at := netip.AddrPortFrom(addr, dnsPort).String()
	r.udp, err = openDatagrams(ctx, open, at, func() (net.Conn, error) { return r.dial(context.Background(), "udp4", at) })
	if err != nil {
		return err
	}
	what := &api.ReverseListen{Place: &api.ReverseListen_Tcp{Tcp: at}}
	r.tcp, err = Listen(ctx, open, what, func(ctx context.Context) (relay.HalfCloser, error) {
		conn, err := r.dial(ctx, "tcp4", at)
		if err != nil {
			return nil, err
		}
		return relay.TCP(conn.(*net.TCPConn)), nil
	})
	return err
}

// dial connects from inside the namespace: the engine may have rules there that
// redirect the resolver's port, as Docker does.
func (r *Resolver) dial(ctx context.Context, network, at string) (conn net.Conn, err error) {
	err = netns.Do(r.ns, func() error {
		// Dialling a numeric address stays on this goroutine, and so on this
		// thread.
		conn, err = new(net.Dialer).DialContext(ctx, network, at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to resolver %s: %w", at, err)
	}
	return conn, nil
}

// Close ends the forwarding and waits. It may be called again.
func (r *Resolver) Close() error {
	var errs []error
	if r.udp != nil {
		errs = append(errs, r.udp.Close())
	}
	if r.tcp != nil {
		errs = append(errs, r.tcp.Close())
	}
	if err := r.ns.Close(); !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
