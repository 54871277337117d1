package network

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// topPriority is that of the redirect, unless another filter has it or a higher one
// (freePriorities). Filters with lower numbers run first: existing filters keep their
// effect.
const topPriority = 0xc000

// ingressParent is the parent of filters for incoming packets, with an ingress
// qdisc as with a clsact (include/uapi/linux/pkt_sched.h, TC_H_MIN_INGRESS).
const ingressParent = netlink.HANDLE_MIN_INGRESS

// hasIngress reports whether a link has an ingress or a clsact qdisc: it can
// have only one of them.
func (ns *namespace) hasIngress(index int) (bool, error) {
	qdiscs, err := ns.qdiscs(index)
	if err != nil {
		return false, err
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_INGRESS {
			return true, nil
		}
	}
	return false, nil
}

// qdiscs returns a link's qdiscs.
func (ns *namespace) qdiscs(index int) ([]netlink.Qdisc, error) {
	var list []netlink.Qdisc
	err := again(func() (err error) {
		list, err = ns.QdiscList(linkAt(index))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	return list, nil
}

// filters returns the filters for a link's incoming packets.
func (ns *namespace) filters(index int) ([]netlink.Filter, error) {
	var list []netlink.Filter
	err := again(func() (err error) {
		list, err = ns.FilterList(linkAt(index), ingressParent)
		return err
	})
	if errors.Is(err, unix.EINVAL) { // no qdisc
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return list, nil
}

// again repeats a dump that a change interrupted.
func again(dump func() error) error {
	err := dump()
	for i := 0; i < maxScans && errors.Is(err, netlink.ErrDumpInterrupted); i++ {
		err = dump()
	}
	return err
}

// linkAt refers to a link by its index alone.
func linkAt(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// freePriorities returns two priorities that no filter of the link has, so that
// removing by priority removes only ours. The filter of the first runs first. Both
// follow what is there: a filter without a priority gets the kernel's, which is
// topPriority (net/sched/cls_api.c, tcf_auto_prio), and must keep its effect.
func (ns *namespace) freePriorities(index int) (first, second uint16, err error) {
	filters, err := ns.filters(index)
	if err != nil {
		return 0, 0, err
	}
	first, second = choosePriorities(filters)
	return first, second, nil
}

func choosePriorities(filters []netlink.Filter) (first, second uint16) {
	taken, last := make(map[uint16]bool), uint16(topPriority-2)
	for _, f := range filters {
		taken[f.Attrs().Priority] = true
		last = max(last, f.Attrs().Priority)
	}
	if last <= math.MaxUint16-2 {
		return last + 1, last + 2
	}
	for second = math.MaxUint16; taken[second]; {
		second--
	}
	for first = second - 1; taken[first]; {
		first--
	}
	return first, second
}

// addIngress gives a link an ingress qdisc. It returns false if the link
// already has one or a clsact.
func (ns *namespace) addIngress(index int) (made bool, err error) {
	err = ns.QdiscAdd(ingressOf(index)) // with NLM_F_EXCL
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("add ingress qdisc: %w", err)
	}
	return true, nil
}

func (ns *namespace) removeIngress(index int) error {
	if err := ns.QdiscDel(ingressOf(index)); err != nil && !noSuchQdisc(err) {
		return fmt.Errorf("remove ingress qdisc: %w", err)
	}
	return nil
}

func ingressOf(index int) *netlink.Ingress {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
}

// A direction is what happens to a packet at the link to which it is
// redirected.
type direction = netlink.MirredAct

const (
	sent     direction = netlink.TCA_EGRESS_REDIR
	received direction = netlink.TCA_INGRESS_REDIR
)

// copies has, for a redirect, the action that copies packets.
var copies = map[direction]netlink.MirredAct{sent: netlink.TCA_EGRESS_MIRROR, received: netlink.TCA_INGRESS_MIRROR}

// addCopy copies some of what one link receives to another, as a redirect of that
// priority does, and lets it pass. It must be added before the redirect, whose
// priority it has, so that both are removed together.
func (ns *namespace) addCopy(from, to int, as direction, priority uint16, what *netlink.TcU32Sel) error {
	f := filterOf(from, priority)
	f.Sel = what
	f.Actions = []netlink.Action{&netlink.MirredAction{
		ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_OK}, MirredAction: copies[as], Ifindex: to,
	}}
	if err := ns.FilterAdd(f); err != nil {
		return fmt.Errorf("copy packets: %w", err)
	}
	return nil
}

// dhcpAnswer matches IPv4 packets without options, of UDP, to port 68: CNI's dhcp
// plugin renews leases from the host, with a socket in the namespace. A frame of
// another protocol that happens to match is not lost.
func dhcpAnswer() *netlink.TcU32Sel {
	return &netlink.TcU32Sel{
		Flags: netlink.TC_U32_TERMINAL,
		Keys: []netlink.TcU32Key{
			{Off: 0, Mask: 0xff000000, Val: 0x45000000},
			{Off: 8, Mask: 0x00ff0000, Val: unix.IPPROTO_UDP << 16},
			{Off: 20, Mask: 0x0000ffff, Val: 68},
		},
	}
}

// addRedirect redirects every packet that one link receives to another, which
// sends it or handles it as received.
func (ns *namespace) addRedirect(from, to int, as direction, priority uint16) error {
	f := filterOf(from, priority)
	redirect := netlink.NewMirredAction(to)
	redirect.MirredAction = as
	f.Actions = []netlink.Action{redirect}
	if err := ns.FilterAdd(f); err != nil {
		return fmt.Errorf("redirect packets: %w", err)
	}
	return nil
}

// removeRedirect removes the filters of a priority.
func (ns *namespace) removeRedirect(from int, priority uint16) error {
	err := ns.FilterDel(filterOf(from, priority))
	if err != nil && !noSuchQdisc(err) {
		return fmt.Errorf("remove redirect: %w", err)
	}
	return nil
}

// removeFilter removes one u32 filter, and no other of its priority.
func (ns *namespace) removeFilter(a *netlink.FilterAttrs) error {
	if err := ns.FilterDel(&netlink.U32{FilterAttrs: *a}); err != nil && !noSuchQdisc(err) {
		return fmt.Errorf("remove redirect that leads nowhere: %w", err)
	}
	return nil
}

// filterOf matches every packet: a u32 filter without a selector gets one with
// a zero mask.
func filterOf(index int, priority uint16) *netlink.U32 {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: ingressParent, Priority: priority, Protocol: unix.ETH_P_ALL,
	}}
}

// noSuchQdisc reports whether err means that what was to be removed does not
// exist: net/sched/ sch_api.c and cls_api.c answer ENOENT or EINVAL, and ENODEV
// without the link.
func noSuchQdisc(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || isGone(err)
}
