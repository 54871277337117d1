package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/reverse"
)

// maxResolvers bounds the resolvers of a pod: each container's resolv.conf
// names three at most (resolv.conf(5), MAXNS).
const maxResolvers = 8

// resolvers are the engine's DNS resolvers that are forwarded to the guest:
// those on a loopback address of the pod's network namespace, like Docker's at
// 127.0.0.11.
type resolvers struct {
	mu sync.Mutex // guards what follows
	// open has nil for one that is being opened.
	open map[netip.Addr]*reverse.Resolver
	// giveUp cancels the calls of openResolver under way; opening has a token for each.
	giveUp  map[netip.Addr]context.CancelCauseFunc
	opening sync.WaitGroup
	closed  bool
}

// errForwardStopped is why a resolver is not opened any more.
var errForwardStopped = errors.New("the forwarding of resolvers was stopped")

// OpenResolvers makes reachable for the guest each resolver that a container's
// resolv.conf (its path on the host) names and that the guest cannot reach over
// its network. A failure is logged: the container then cannot resolve names.
// After StopForward it does nothing.
func (p *Pod) OpenResolvers(ctx context.Context, resolvConf string) {
	if resolvConf == "" || p.namespace == "" || p.gone() {
		return
	}
	dns, err := readDNS(ctx, resolvConf)
	if err != nil {
		log.G(ctx).WithError(err).Warn("the container's DNS resolvers could not be read")
		return
	}
	for _, addr := range loopbackResolvers(dns.GetServers()) {
		err := p.openResolver(ctx, addr)
		switch {
		case errdefs.IsNotFound(err), errors.Is(err, errForwardStopped):
			log.G(ctx).WithError(err).Debug("a DNS resolver on loopback is not forwarded")
		case err != nil:
			log.G(ctx).WithError(err).Warnf("containers cannot reach their DNS resolver %s", addr)
		}
	}
}

// loopbackResolvers returns the servers that may be in the pod's namespace.
// 127.0.0.1 is not among them: it is the pod's "localhost", whose ports in the
// namespace are forwarded to the guest.
func loopbackResolvers(servers []string) []netip.Addr {
	var found []netip.Addr
	for _, server := range servers {
		addr, err := netip.ParseAddr(server)
		if err == nil && addr.Is4() && addr.IsLoopback() && addr != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && !slices.Contains(found, addr) {
			found = append(found, addr)
		}
	}
	return found
}

// openResolver forwards one resolver, unless that is done already. StopForward ends
// the call.
func (p *Pod) openResolver(ctx context.Context, addr netip.Addr) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if mine, err := p.resolvers.claim(addr, giveUp); !mine {
		return err
	}
	defer p.resolvers.opening.Done()
	ctx, cancel := context.WithTimeout(ctx, p.opts.Config.Agent.DialTimeout)
	defer cancel()
	r, err := reverse.OpenResolver(ctx, p.client.Reverse, p.namespace, addr)
	if err == nil && p.forward != nil {
		err = p.forward.Exempt(addr) // otherwise queries over TCP would go back to the guest
	}
	err = p.resolvers.settle(addr, r, err)
	if err != nil && r != nil {
		err = errors.Join(err, r.Close())
	}
	return err
}

// claim reports whether the caller must forward addr; it must then call settle
// and opening.Done. close calls giveUp meanwhile.
func (r *resolvers) claim(addr netip.Addr, giveUp context.CancelCauseFunc) (mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.open[addr]; known || r.closed {
		return false, nil
	}
	if len(r.open) >= maxResolvers {
		return false, fmt.Errorf("forward resolver %s: the pod has %d, which is the most: %w", addr, maxResolvers, errdefs.ErrResourceExhausted)
	}
	if r.open == nil {
		r.open, r.giveUp = map[netip.Addr]*reverse.Resolver{}, map[netip.Addr]context.CancelCauseFunc{}
	}
	r.open[addr], r.giveUp[addr] = nil, giveUp
	r.opening.Add(1)
	return true, nil
}

// settle records the result for addr. A failed one may be tried again. On an error, which
// is err or that close was called, the caller closes what it has opened.
func (r *resolvers) settle(addr netip.Addr, opened *reverse.Resolver, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.giveUp, addr)
	if r.closed {
		err = errors.Join(errForwardStopped, err)
	}
	if err != nil {
		delete(r.open, addr)
		return err
	}
	r.open[addr] = opened
	return nil
}

// close ends all of them; none is opened afterwards. It gives up those that are being
// opened, and waits for them until ctx ends.
func (r *resolvers) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for _, giveUp := range r.giveUp {
		giveUp(errForwardStopped)
	}
	r.mu.Unlock()
	settled := make(chan struct{})
	go func() {
		r.opening.Wait()
		close(settled)
	}()
	var err error
	select {
	case <-settled:
	case <-ctx.Done():
		err = fmt.Errorf("wait for resolvers that are being opened: %w", context.Cause(ctx))
	}
	return errors.Join(err, r.closeAll())
}

// closeAll ends those that are open. They can be opened again.
func (r *resolvers) closeAll() error {
	var errs []error
	for _, opened := range r.takeAll() {
		errs = append(errs, opened.Close())
	}
	return errors.Join(errs...)
}

// takeAll forgets those that are open, except what is being opened.
func (r *resolvers) takeAll() (all []*reverse.Resolver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, opened := range r.open {
		if opened != nil {
			all = append(all, opened)
			delete(r.open, addr)
		}
	}
	return all
}
