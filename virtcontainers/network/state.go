package network

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// describe returns what the guest must be told about the links that are in
// pciPaths, by their indexes. notes say what was omitted, and why.
func (v *view) describe(pciPaths map[int]string) (want *api.SetNetworkRequest, notes []string, err error) {
	want = &api.SetNetworkRequest{LoWithoutIpv6: v.loWithoutIPv6}
	r := newRouting(v)
	for _, l := range v.links {
		path, given := pciPaths[l.index]
		if !given {
			continue
		}
		if !l.down { // else the kernel has removed its routes and neighbours
			r.names[l.index] = l.name
		}
		i := &api.Interface{
			PciPath: path, Name: l.name, Mac: l.mac, Mtu: uint32(l.mtu), NoArp: l.noARP, // at most maxMTU
			WithoutIpv6: l.withoutIPv6, Down: l.down, Settings: l.settings,
		}
		for _, a := range l.addrs {
			prefix, peer := addressOf(a)
			r.madeFor(l.index, networkOf(prefix, peer))
			if !isStation(prefix.Addr()) || leftOut(a, prefix.Addr()) {
				continue
			}
			unrouted := v.unrouted(l, a, prefix, peer)
			i.Addresses = append(i.Addresses, &api.Address{Prefix: prefix.String(), Peer: peer, NoPrefixRoute: unrouted})
			r.own(l.name, prefix, peer, unrouted)
		}
		want.Interfaces = append(want.Interfaces, i)
	}
	var ruleNotes []string
	want.Rules, want.AbsentRules, ruleNotes = v.policy.describe(want.GetInterfaces())
	r.look(want.GetRules())
	for _, route := range v.routes {
		r.add(route)
	}
	want.Routes = r.finish()
	notes = slices.Concat(v.notes, ruleNotes, r.notes)
	want.Neighbours = v.neighbours(r.names)
	for _, i := range want.GetInterfaces() {
		if n := len(i.GetAddresses()); n > api.MaxAddresses {
			return want, notes, tooMany(fmt.Sprintf("addresses on link %s", i.GetName()), n, api.MaxAddresses)
		}
	}
	return want, notes, checkLimits(want)
}

// unrouted reports whether the guest's kernel must not make the usual route to
// the address's network: if the address has that flag, or the route was removed
// in the namespace, as CNI's ptp plugin does, or has another metric: then the guest
// gets it as a route. For a link in a VRF its table is looked at; the guest's route
// is in the main one.
func (v *view) unrouted(l link, a netlink.Addr, prefix netip.Prefix, peer string) bool {
	if a.Flags&unix.IFA_F_NOPREFIXROUTE != 0 {
		return true
	}
	if !l.up || prefix.IsSingleIP() && peer == "" {
		return false // the kernel makes no route
	}
	to := networkOf(prefix, peer)
	return !slices.ContainsFunc(v.routes, func(r netlink.Route) bool {
		return r.Table == l.table && r.Protocol == unix.RTPROT_KERNEL && r.LinkIndex == l.index && r.Priority == kernelMetric(to) &&
			r.Dst != nil && prefixOf(r.Dst).Masked() == to && !hasGateway(r)
	})
}

// networkOf returns the network to which the kernel makes a route for an address.
func networkOf(prefix netip.Prefix, peer string) netip.Prefix {
	if other, err := netip.ParseAddr(peer); err == nil {
		return netip.PrefixFrom(other, prefix.Bits()).Masked()
	}
	return prefix.Masked()
}

// checkLimits refuses what the guest would refuse.
func checkLimits(want *api.SetNetworkRequest) error {
	for _, limit := range []struct {
		what    string
		is, max int
	}{
		{"links with addresses", len(want.GetInterfaces()), api.MaxInterfaces},
		{"routes", len(want.GetRoutes()), api.MaxRoutes},
		{"policy rules", len(want.GetRules()), api.MaxRules},
		{"permanent neighbours", len(want.GetNeighbours()), api.MaxNeighbours},
	} {
		if limit.is > limit.max {
			return tooMany(limit.what, limit.is, limit.max)
		}
	}
	return nil
}

func tooMany(what string, n, most int) error {
	return fmt.Errorf("the network namespace has %d %s: a guest has at most %d: %w", n, what, most, errdefs.ErrInvalidArgument)
}

// addressOf returns an address with the length of its network and, for a
// point-to-point one, the peer's address: the kernel keeps the length with the
// peer.
func addressOf(a netlink.Addr) (prefix netip.Prefix, peer string) {
	prefix = prefixOf(a.IPNet)
	if a.Peer == nil {
		return prefix, ""
	}
	other := prefixOf(a.Peer)
	if other.Addr() == prefix.Addr() {
		return other, ""
	}
	return netip.PrefixFrom(prefix.Addr(), other.Bits()), other.Addr().String()
}

// prefixOf converts a network of the netlink package. A mask of four bytes
// means IPv4, however long the address is.
func prefixOf(n *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(n.IP)
	if len(n.Mask) == net.IPv4len {
		addr = addr.Unmap()
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr, bits)
}

// addrOf converts an IP of a family; it returns the zero Addr if it cannot.
func addrOf(ip net.IP, family int) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	if family == unix.AF_INET {
		addr = addr.Unmap()
	}
	return addr
}

// isStation reports whether a is a unicast address, which is what the guest
// accepts.
func isStation(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6()
}

// leftOut reports whether the guest does not get an IPv6 address: one that
// another station was found to have (RFC 4862, section 5.4.5), or one from a
// router's advertisement. Those expire here, because the advertisements go to
// the guest, whose kernel makes its own.
func leftOut(a netlink.Addr, ip netip.Addr) bool {
	return ip.Is6() && a.Flags&(unix.IFA_F_DADFAILED|unix.IFA_F_MANAGETEMPADDR|unix.IFA_F_TEMPORARY) != 0
}

// neighbours returns the permanent neighbours, of either family, of the links
// in names.
func (v *view) neighbours(names map[int]string) []*api.Neighbour {
	var all []*api.Neighbour
	for _, n := range v.neighs {
		name, given := names[n.LinkIndex]
		addr := addrOf(n.IP, n.Family)
		if !given || n.State&netlink.NUD_PERMANENT == 0 || n.Flags&netlink.NTF_PROXY != 0 || len(n.HardwareAddr) != 6 ||
			isZero(n.HardwareAddr) || !isStation(addr) {
			continue
		}
		all = append(all, &api.Neighbour{Interface: name, Address: addr.String(), Mac: n.HardwareAddr})
	}
	slices.SortFunc(all, func(a, b *api.Neighbour) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Address, b.Address), bytes.Compare(a.Mac, b.Mac))
	})
	return all
}
