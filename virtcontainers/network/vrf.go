package network

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vrfTables returns the tables of the VRFs that have a link with an address.
func (v *view) vrfTables() map[int]bool {
	tables := make(map[int]bool)
	for _, l := range v.links {
		if l.table != 0 {
			tables[l.table] = true
		}
	}
	return tables
}

// noteVRF notes a route of a table that no rule names, if it is a VRF's: in the namespace
// the l3mdev rule finds it, which a guest does not have. The guest's kernel makes its own
// instead of the namespace's kernel's.
func (r *routing) noteVRF(route netlink.Route, to netip.Prefix) {
	if r.vrfs[route.Table] && route.Protocol != unix.RTPROT_KERNEL && route.Protocol != unix.RTPROT_RA {
		r.notef("route to %s: in table %d of a VRF, which a guest does not have", to, route.Table)
	}
}
