package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/netns"
)

// maxConnections bounds the simultaneous connections of one namespace,
// including those that are being dialled. Each costs two goroutines, two
// descriptors and two buffers.
const maxConnections = 256

// DialFunc connects to a TCP address of the guest's loopback ("127.0.0.1:80",
// "[::1]:80"). It must fail soon after ctx ends; the connection outlives ctx.
type DialFunc func(ctx context.Context, address string) (guest.Conn, error)

// Forwarder brings TCP connections to a namespace's loopback into a guest.
type Forwarder struct {
	dial    DialFunc
	slots   chan struct{} // holds one element for each connection
	running sync.WaitGroup
	exempt  *ebpf.Map
	close   func() error
}

// Open starts to forward. namespace is the path of the pod's network namespace;
// this process's namespace and the host's are refused, because all of the host
// uses their loopback. ctx's values are kept for logs; its end is ignored: the
// Forwarder lives until Close.
//
// Open fails with errdefs.ErrNotImplemented when the kernel has no sk_lookup
// programs, and with errdefs.ErrPermissionDenied when this process may not use
// them.
func Open(ctx context.Context, namespace string, dial DialFunc) (*Forwarder, error) {
	ns, err := netns.Open(namespace)
	if err != nil {
		return nil, fmt.Errorf("forward ports of network namespace %s: %w", namespace, err)
	}
	defer ns.Close()
	listeners, err := listenIn(ns)
	if err != nil {
		return nil, fmt.Errorf("forward ports of network namespace %s: %w", namespace, err)
	}
	exempt, err := newExempt()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forward ports of network namespace %s: %w", namespace, err), closeAll(listeners))
	}
	link, err := steer(ns, listeners, exempt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forward ports of network namespace %s: %w", namespace, err), closeAll(listeners), exempt.Close())
	}
	f := &Forwarder{dial: dial, slots: make(chan struct{}, maxConnections), exempt: exempt}
	f.start(context.WithoutCancel(ctx), link, listeners)
	return f, nil
}

// start accepts connections. Close detaches the program first: connections are
// then looked up, and refused, by the kernel rather than steered to a closed
// listener.
func (f *Forwarder) start(ctx context.Context, link io.Closer, listeners []*net.TCPListener) {
	ctx, cancel := context.WithCancel(ctx)
	for _, l := range listeners {
		f.running.Go(func() { f.serve(ctx, l) })
	}
	f.close = sync.OnceValue(func() error {
		cancel()
		err := errors.Join(link.Close(), closeAll(listeners), f.exempt.Close())
		f.running.Wait()
		if err != nil {
			return fmt.Errorf("stop forwarding ports: %w", err)
		}
		return nil
	})
}

// Exempt leaves an IPv4 loopback address to processes that listen in the
// namespace: an engine's DNS resolver at 127.0.0.11. At most maxExempt
// addresses can be exempt.
func (f *Forwarder) Exempt(addr netip.Addr) error {
	if !addr.Is4() || !addr.IsLoopback() {
		return fmt.Errorf("exempt %s from port forwarding: want an address in 127.0.0.0/8: %w", addr, errdefs.ErrInvalidArgument)
	}
	if err := f.exempt.Put(addr.As4(), uint8(1)); err != nil {
		return fmt.Errorf("exempt %s from port forwarding: %w", addr, err)
	}
	return nil
}

// Close ends the forwarding and resets every connection. It cancels dials under
// way, and waits for them and for all connections. It may be called again.
func (f *Forwarder) Close() error { return f.close() }

func closeAll(listeners []*net.TCPListener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
