package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/log"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// chain is what is on the way of the packets of a NIC: the filters of its link and those of
// the tap or macvtap that was made for it.
type chain struct {
	made int // index of the tap or macvtap
	// to is the index of the link to which what was made redirects what it receives: the link,
	// or a macvtap's ifb. It is 0 for a macvtap without one.
	to               int
	atLink, atMade   []netlink.Filter
	in, sockets, out bool // which of ours are there, or not needed
}

// chain reads which filters a link that was joined has.
func (n *Network) chain(index int, c joint) (*chain, error) {
	made, err := n.indexOf(c.Made)
	if err != nil {
		return nil, err
	}
	w := &chain{made: made, to: index}
	if w.atLink, err = n.ns.filters(index); err != nil {
		return nil, err
	}
	if w.atMade, err = n.ns.filters(made); err != nil {
		return nil, err
	}
	if c.Kind == macvtapKind {
		w.to = 0
		if c.Shaper != "" {
			if w.to, err = n.indexOf(c.Shaper); err != nil {
				return nil, err
			}
		}
	}
	w.in = slices.ContainsFunc(w.atLink, func(f netlink.Filter) bool { return f.Attrs().Priority == c.Priority && redirects(f, made) })
	w.sockets = c.Sockets == 0 || slices.ContainsFunc(w.atLink, func(f netlink.Filter) bool { return isSockets(f, c.Sockets) })
	w.out = w.to == 0 || slices.ContainsFunc(w.atMade, func(f netlink.Filter) bool { return redirects(f, w.to) })
	return w, nil
}

func (n *Network) indexOf(name string) (int, error) {
	l, err := n.ns.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	return l.Attrs().Index, nil
}

// redirects reports whether a filter is one of addRedirect's, to the link of that index.
// Another program's may have the same priority.
func redirects(f netlink.Filter, to int) bool { return leadsBy(f, to, sent, received) }

// copiesTo is redirects for addCopy.
func copiesTo(f netlink.Filter, to int) bool { return leadsBy(f, to, copies[sent], copies[received]) }

func leadsBy(f netlink.Filter, to int, ways ...netlink.MirredAct) bool {
	u, ok := f.(*netlink.U32)
	return ok && slices.ContainsFunc(u.Actions, func(a netlink.Action) bool {
		m, ok := a.(*netlink.MirredAction)
		return ok && m.Ifindex == to && slices.Contains(ways, m.MirredAction)
	})
}

// leadsNowhere reports whether a filter is one of connectOut's whose link was in another
// namespace meanwhile. It drops every packet.
func leadsNowhere(f netlink.Filter) bool {
	u, ok := f.(*netlink.U32)
	return ok && len(u.Actions) == 1 && u.Protocol == unix.ETH_P_ALL && leadsBy(f, 0, sent)
}

// isSockets reports whether a filter is addSockets' of that priority.
func isSockets(f netlink.Filter, priority uint16) bool {
	b, ok := f.(*netlink.BpfFilter)
	return ok && b.Priority == priority && strings.HasPrefix(b.Name, socketName)
}

// cut reports whether a NIC has lost one of its filters: another program in the namespace
// may replace the qdisc. It logs filters that run before ours.
func (n *Network) cut(ctx context.Context, found *view) bool {
	var cut bool
	for _, l := range found.links {
		c, joined := n.nics[l.index]
		if !joined || c.gone || !c.redirected {
			continue
		}
		w, err := n.chain(l.index, c.made)
		if err != nil {
			continue
		}
		n.warn(ctx, l, c.made, w)
		cut = cut || !w.in || !w.sockets || !w.out
	}
	return cut
}

// warn logs, once for each, the filters of other programs that run before ours. If one
// accepts a packet, no other filter sees it (TC_ACT_OK), and the host's stack has it instead
// of the guest or of those to whom the guest sends it.
func (n *Network) warn(ctx context.Context, l link, made joint, w *chain) {
	for _, filter := range append(w.earlyAtLink(l.name, made), w.earlyAtMade(made.Made)...) {
		if n.tellOnce(filter) {
			log.G(ctx).Warnf("%s runs before the pod's redirect: packets that it accepts do not pass between guest and network (docs/networking.md)", filter)
		}
	}
}

// earlyAtLink describes the filters that run before ours on the link of that name.
func (w *chain) earlyAtLink(name string, made joint) []string {
	first := made.Priority
	if made.Sockets != 0 {
		first = min(first, made.Sockets)
	}
	var early []string
	for _, f := range w.atLink {
		if a := f.Attrs(); a.Priority < first && inFirstChain(a) {
			early = append(early, describeFilter(name, f))
		}
	}
	return early
}

// earlyAtMade is earlyAtLink for what was made. The kernel lists filters in their order.
func (w *chain) earlyAtMade(name string) []string {
	var early []string
	for _, f := range w.atMade {
		if w.to == 0 || redirects(f, w.to) {
			break
		}
		if inFirstChain(f.Attrs()) {
			early = append(early, describeFilter(name, f))
		}
	}
	return early
}

func inFirstChain(a *netlink.FilterAttrs) bool { return a.Chain == nil || *a.Chain == 0 }

func describeFilter(link string, f netlink.Filter) string {
	kind := f.Type()
	if b, ok := f.(*netlink.BpfFilter); ok && b.Name != "" {
		kind += " " + b.Name
	}
	return fmt.Sprintf("tc filter %s of priority %d on link %s", kind, f.Attrs().Priority, link)
}

// reconnect makes a NIC's filters again that it has lost: with a qdisc, or because the link
// was in another namespace meanwhile.
func (n *Network) reconnect(ctx context.Context, c *nic, l link) error {
	if !c.redirected {
		return nil
	}
	w, err := n.chain(l.index, c.made)
	if err != nil {
		return ignoreGone(err)
	}
	if !w.out {
		if err := n.reconnectOut(w); err != nil {
			return ignoreGone(err)
		}
	}
	switch {
	case !w.in:
		return n.reconnectIn(ctx, c, l, w)
	case !w.sockets:
		_, err := n.tryAddSockets(ctx, l.index, c.made.Sockets)
		return ignoreGone(err)
	}
	return nil
}

func ignoreGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}

// reconnectOut makes the filter again of what was made for a link.
func (n *Network) reconnectOut(w *chain) error {
	for _, f := range w.atMade {
		if !leadsNowhere(f) {
			continue
		}
		if err := n.ns.removeFilter(f.Attrs()); err != nil {
			return err
		}
	}
	_, priority, err := n.ns.freePriorities(w.made)
	if err != nil {
		return err
	}
	return n.ns.connectOut(w.made, w.to, priority)
}

// reconnectIn makes the filters again of a link that has lost the redirect. What may be left
// of the others is removed before: they precede it.
func (n *Network) reconnectIn(ctx context.Context, c *nic, l link, w *chain) (err error) {
	if w.sockets && c.made.Sockets != 0 {
		if err := n.ns.removeSockets(l.index, c.made.Sockets); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(w.atLink, func(f netlink.Filter) bool { return f.Attrs().Priority == c.made.Priority && copiesTo(f, w.made) }) {
		if err := n.ns.removeRedirect(l.index, c.made.Priority); err != nil {
			return err
		}
	}
	p := plan{link: l, made: c.made}
	if p.want, err = n.planRedirect(c.made); err != nil {
		return err
	}
	c.made = p.want
	if err := n.save(); err != nil {
		return err
	}
	p.made.Ingress, p.made.Priority, p.made.Sockets = false, 0, 0
	as := sent
	if c.made.Kind == macvtapKind {
		as = received
	}
	if p.want.Rate {
		err = errors.Join(n.ns.removeRate(l.index), n.ns.limitRate(l.index, n.opts.TxRate))
	}
	if err == nil {
		err = n.connectIn(ctx, &p, w.made, as)
	}
	c.made = p.made
	return err
}
