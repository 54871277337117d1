package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// The MTUs that both a tap and a virtio NIC can have: MIN_MTU in the kernel's
// drivers/net/tun.c, and there MAX_MTU without the Ethernet header.
const (
	minMTU = 68
	maxMTU = 65535 - 14
)

// group marks multicast addresses, in the first byte (IEEE 802, the I/G bit).
const group = 1

func isZero(mac net.HardwareAddr) bool { return strings.Trim(string(mac), "\x00") == "" }

// maxScans bounds how often a scan is restarted because the kernel reports a
// change during the dump (NLM_F_DUMP_INTR).
const maxScans = 8

// link is a link of the namespace that has, or is to get, a NIC.
type link struct {
	index int
	name  string
	kind  string // "veth", "macvlan", ...
	mac   net.HardwareAddr
	mtu   int
	noARP bool
	up    bool
	// down is set if the guest's is to be down.
	down bool
	// withoutIPv6 is set if the link has no IPv6.
	withoutIPv6 bool
	// settings are those that are not the namespace's usual ones.
	settings []*api.Setting
	addrs    []netlink.Addr
	// tap is set if the link is itself a tap and needs no other.
	tap bool
	// l3s is set for an ipvlan of that mode.
	l3s bool
	// table is that of the kernel's routes for the link: 0 for the main one, or a VRF's.
	table int
}

// view is what was found in a namespace.
type view struct {
	links  []link        // ordered by index
	bad    map[int]error // links that have addresses but cannot have a NIC
	names  map[int]string
	routes []netlink.Route // of every table but the local one; 0 is the main one
	// oddRoutes has those of which the guest would get only a part.
	oddRoutes map[routeKey]bool
	policy    policy
	neighs    []netlink.Neigh
	// uppers has, for a link that carries another one of the namespace, the
	// other's name; notes say what that means for the guest.
	uppers map[int]string
	notes  []string
	// loWithoutIPv6 is set if lo has no IPv6.
	loWithoutIPv6 bool
}

// scan reads the namespace. It skips links named in own; those in keep have a
// NIC, and are included whatever their state.
func (ns *namespace) scan(ctx context.Context, own map[string]bool, keep func(index int) bool) (*view, error) {
	for range maxScans {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("scan network namespace: %w", context.Cause(ctx))
		}
		v, err := ns.scanOnce(own, keep)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return v, err
		}
	}
	return nil, fmt.Errorf("scan network namespace: it changed during each of %d scans: %w", maxScans, errdefs.ErrUnavailable)
}

func (ns *namespace) scanOnce(own map[string]bool, keep func(index int) bool) (*view, error) {
	links, err := ns.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	addrs, err := ns.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	v := &view{bad: make(map[int]error), names: make(map[int]string), uppers: uppers(links, own)}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := ns.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		v.addRoutes(routes)
	}
	v.neighs, err = ns.NeighListExecute(netlink.Ndmsg{State: netlink.NUD_PERMANENT})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, l := range links {
		if !own[l.Attrs().Name] {
			v.add(l, addrs, keep)
		}
	}
	err = ns.do(func() error {
		if err := v.readOddRoutes(); err != nil {
			return err
		}
		if err := v.policy.read(); err != nil {
			return err
		}
		return errors.Join(v.readIPv6(), v.readSettings())
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(v.links, func(a, b link) int { return cmp.Compare(a.index, b.index) })
	return v, nil
}

// addRoutes adds the routes of all tables but the local one, which are the kernel's.
func (v *view) addRoutes(routes []netlink.Route) {
	for _, r := range routes {
		if r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		r.Table = tableOf(r.Table)
		v.routes = append(v.routes, r)
	}
}

// tableOf returns a table's number, and 0 for the main one.
func tableOf(table int) int {
	if table == unix.RT_TABLE_MAIN {
		return 0
	}
	return table
}

// add adds a link that the guest gets.
func (v *view) add(l netlink.Link, addrs []netlink.Addr, keep func(index int) bool) {
	a := l.Attrs()
	v.names[a.Index] = a.Name
	if a.Flags&net.FlagLoopback != 0 {
		return
	}
	addrs = slices.DeleteFunc(slices.Clone(addrs), func(addr netlink.Addr) bool {
		return addr.LinkIndex != a.Index || addr.IPNet == nil
	})
	if len(addrs) == 0 && !keep(a.Index) {
		return // it may get some later
	}
	if upper, ok := v.uppers[a.Index]; ok {
		if onlyLinkLocal(addrs) && !keep(a.Index) {
			return // the guest has the upper link
		}
		v.notes = append(v.notes, fmt.Sprintf("packets for link %s: they come over link %s, whose own NIC gets them", upper, a.Name))
	}
	tap, _ := l.(*netlink.Tuntap)
	found := link{
		index: a.Index, name: a.Name, kind: l.Type(), mac: a.HardwareAddr, mtu: a.MTU,
		noARP: a.RawFlags&unix.IFF_NOARP != 0, up: a.Flags&net.FlagUp != 0, addrs: addrs,
		tap: tap != nil && tap.Mode == netlink.TUNTAP_MODE_TAP && !tap.NonPersist,
	}
	if ipvlan, ok := l.(*netlink.IPVlan); ok {
		found.l3s = ipvlan.Mode == netlink.IPVLAN_MODE_L3S
	}
	if slave, ok := a.Slave.(*netlink.VrfSlave); ok {
		found.table = tableOf(int(slave.Table))
	}
	found.down = !found.up && !found.tap // a tap's state is that of the VM's other end
	if err := found.check(a.EncapType); err != nil {
		v.bad[a.Index] = err
		if !keep(a.Index) {
			return
		}
		found.mtu = min(max(found.mtu, minMTU), maxMTU) // a NIC keeps what it can have
		found.name = strings.ToValidUTF8(found.name, "?")
	}
	v.links = append(v.links, found)
}

// check says why a link cannot have a NIC.
func (l *link) check(encap string) error {
	what := fmt.Sprintf("link %s (%s)", l.name, l.kind)
	switch {
	case !utf8.ValidString(l.name):
		return fmt.Errorf("link %q (%s) has addresses but a name that is not UTF-8, which a guest cannot be told: %w", l.name, l.kind, errdefs.ErrInvalidArgument)
	case l.kind == "netkit" && isZero(l.mac):
		return fmt.Errorf("%s has addresses but no hardware address, which a VM's NIC needs: use a netkit in mode l2 (Cilium: bpf.datapathMode=netkit-l2): %w", what, errdefs.ErrInvalidArgument)
	case encap != "ether" || len(l.mac) != 6 || l.mac[0]&group != 0 || isZero(l.mac):
		return fmt.Errorf("%s has addresses but the hardware address %q: a VM's NIC needs an Ethernet link with a MAC of six bytes: %w",
			what, l.mac.String(), errdefs.ErrInvalidArgument)
	case l.mtu > maxMTU:
		return fmt.Errorf("%s has an MTU of %d: a VM's NIC has at most %d: %w", what, l.mtu, maxMTU, errdefs.ErrInvalidArgument)
	case l.mtu < minMTU:
		return fmt.Errorf("%s has an MTU of %d: a VM's NIC has at least %d: %w", what, l.mtu, minMTU, errdefs.ErrInvalidArgument)
	}
	return nil
}

// has reports whether the link of that index is in the namespace, of whatever
// kind.
func (v *view) has(index int) bool {
	_, ok := v.names[index]
	return ok
}
