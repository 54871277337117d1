package network

import (
	"fmt"
	"os"
)

// tapKind is the kind of a tap among links.
const tapKind = "tuntap"

// planRedirect says what a link needs so that what comes in over it can be
// redirected.
func (n *Network) planRedirect(made joint) (joint, error) {
	present, err := n.ns.hasIngress(made.Link)
	if err != nil {
		return joint{}, err
	}
	made.Ingress = !present
	made.Priority = topPriority
	if present {
		made.Priority, err = n.ns.freePriority(made.Link)
	}
	return made, err
}

// buildTap makes a link's tap and, with model TCFilter, the redirects.
func (n *Network) buildTap(p plan) ([]*os.File, error) {
	taps, err := n.ns.newTap(p.made.Made, n.opts.Queues)
	if err != nil {
		return nil, err
	}
	tap, err := n.ns.raise(p.made.Made, p.link.mtu)
	if err != nil {
		return taps, err
	}
	if n.opts.RxRate != 0 {
		if err := n.ns.limitRate(tap, n.opts.RxRate); err != nil {
			return taps, fmt.Errorf("%s: %w", p.made.Made, err)
		}
	}
	if p.made.Priority == 0 {
		return taps, nil
	}
	return taps, n.connect(p, tap)
}

// connect redirects what comes in over the link to the tap and back.
func (n *Network) connect(p plan, tap int) error {
	if p.made.Rate {
		if err := n.ns.limitRate(p.link.index, n.opts.TxRate); err != nil {
			return err
		}
	}
	for _, way := range []struct {
		from, to int
		priority uint16
	}{
		{tap, p.link.index, topPriority},
		{p.link.index, tap, p.made.Priority},
	} {
		if _, err := n.ns.addIngress(way.from); err != nil {
			return err
		}
		if err := n.ns.addRedirect(way.from, way.to, sent, way.priority); err != nil {
			return err
		}
	}
	return nil
}
