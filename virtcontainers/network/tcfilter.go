package network

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
)

// tapKind is the kind of a tap among links.
const tapKind = "tuntap"

// checkRedirect refuses an ipvlan in mode l3s: its packets become the link's only where the
// host's stack receives them, after all filters (ipvlan_l3s.c in the kernel's
// drivers/net/ipvlan).
func checkRedirect(l link) error {
	if l.l3s {
		return fmt.Errorf("an ipvlan in mode l3s, whose packets the host's own stack receives instead of the guest: use mode l2 or l3: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// planRedirect adds to want what a link needs so that its incoming packets can
// be redirected.
func (n *Network) planRedirect(want joint) (joint, error) {
	present, err := n.ns.hasIngress(want.Link)
	if err != nil {
		return joint{}, err
	}
	want.Ingress = !present
	want.Sockets, want.Priority = topPriority-1, topPriority
	if present {
		want.Sockets, want.Priority, err = n.ns.freePriorities(want.Link)
	}
	return want, err
}

// buildTap makes a link's tap and, with model TCFilter, the redirects.
func (n *Network) buildTap(ctx context.Context, p *plan) ([]*os.File, error) {
	taps, err := n.ns.newTap(p.want.Made, n.opts.Queues)
	if err != nil {
		return nil, err
	}
	p.made.Made, p.made.Kind = p.want.Made, p.want.Kind
	tap, err := n.ns.raise(p.made.Made, p.link.mtu)
	if err != nil {
		return taps, err
	}
	if n.opts.RxRate != 0 {
		if err := n.ns.limitRate(tap, n.opts.RxRate); err != nil {
			return taps, fmt.Errorf("%s: %w", p.made.Made, err)
		}
	}
	if n.opts.Model != TCFilter {
		return taps, nil
	}
	return taps, n.connect(ctx, p, tap)
}

// connect redirects what the link receives to the tap, and what the tap
// receives to the link.
func (n *Network) connect(ctx context.Context, p *plan, tap int) error {
	if p.want.Rate {
		if err := n.ns.limitRate(p.link.index, n.opts.TxRate); err != nil {
			return err
		}
		p.made.Rate = true
	}
	if err := n.ns.connectOut(tap, p.link.index, topPriority); err != nil {
		return err
	}
	return n.connectIn(ctx, p, tap, sent)
}

// connectOut redirects what a link that was made here receives to another, which sends it.
func (ns *namespace) connectOut(from, to int, priority uint16) error {
	if _, err := ns.addIngress(from); err != nil {
		return err
	}
	return ns.addRedirect(from, to, sent, priority)
}

// connectIn redirects what the link receives.
func (n *Network) connectIn(ctx context.Context, p *plan, to int, as direction) (err error) {
	if err := n.ns.receiveMulticast(p.link.index); err != nil {
		return err
	}
	if p.made.Ingress, err = n.ns.addIngress(p.link.index); err != nil {
		return err
	}
	p.made.Priority = p.want.Priority
	if err := n.ns.addCopy(p.link.index, to, as, p.want.Priority, dhcpAnswer()); err != nil {
		return fmt.Errorf("DHCP answers: %w", err)
	}
	if err := n.passSockets(ctx, p, to, as); err != nil {
		return err
	}
	if err := n.ns.addRedirect(p.link.index, to, as, p.want.Priority); err != nil {
		return err
	}
	return nil
}
