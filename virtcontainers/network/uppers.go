package network

import (
	"slices"

	"github.com/vishvananda/netlink"
)

// uppers returns which links carry another link of the namespace, a bridge's port
// or what a macvlan, ipvlan or vlan is on, and the other's name. With a NIC such a
// link would take the other's packets: filters come first. Links named in own are
// ours.
func uppers(links []netlink.Link, own map[string]bool) map[int]string {
	byIndex := make(map[int]netlink.Link)
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	found := make(map[int]string)
	for _, l := range links {
		a := l.Attrs()
		if own[a.Name] {
			continue
		}
		// A VRF only chooses the routes of its links.
		if master, ok := byIndex[a.MasterIndex]; ok && master.Type() != "vrf" {
			found[a.Index] = master.Attrs().Name
		}
		// A veth's parent is its other end; other parents may be in another
		// namespace, and have the index of a link here.
		if _, ok := byIndex[a.ParentIndex]; ok && a.NetNsID < 0 && l.Type() != "veth" {
			found[a.ParentIndex] = a.Name
		}
	}
	return found
}

// onlyLinkLocal reports whether a link has no addresses but those that the kernel
// gives every IPv6 link.
func onlyLinkLocal(addrs []netlink.Addr) bool {
	return !slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		ip := prefixOf(a.IPNet).Addr()
		return !ip.Is6() || !ip.IsLinkLocalUnicast()
	})
}
