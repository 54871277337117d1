package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/fibrule"
)

// state is a checked request.
type state struct {
	nics       []nic
	routes     []route
	rules      []fibrule.Rule
	neighbours []neighbour
	// resolver is the text of resolv.conf; empty for none.
	resolver      string
	loWithoutIPv6 bool
	// absent are the kernel's first rules that are to go.
	absent []fibrule.Rule
}

// dropAddresses removes the addresses of NIC i for which unwanted returns true.
func (s *state) dropAddresses(i int, unwanted func(address) bool) {
	s.nics[i].addresses = slices.DeleteFunc(slices.Clone(s.nics[i].addresses), unwanted)
}

// nic is one wanted interface.
type nic struct {
	path string // PCI path: "01/1e"
	name string
	mac  [macLen]byte
	// mtu in bytes; 0 leaves the driver's.
	mtu         int
	noARP       bool
	withoutIPv6 bool
	down        bool
	addresses   []address
	// settings are numbers by their names in api.LinkSettings.
	settings map[string]int32
	// index is the kernel's index, once the NIC is found; 0 if a container has taken it.
	index int
}

// hasLinkLocal reports whether the host names the NIC's IPv6 link-local address.
func (n nic) hasLinkLocal() bool {
	return slices.ContainsFunc(n.addresses, func(a address) bool { return a.linkLocal() })
}

// address is one address of an interface. It can be compared with ==.
type address struct {
	// With a peer, the prefix length is that of the peer's network
	// (IFA_PREFIXLEN in rtnetlink(7)).
	prefix netip.Prefix
	peer   netip.Addr
	// unrouted is set if the kernel must not make the route to the prefix.
	unrouted bool
}

func (a address) String() string {
	text := a.prefix.String()
	if a.peer.IsValid() {
		text = fmt.Sprintf("%s peer %s/%d", a.prefix.Addr(), a.peer, a.prefix.Bits())
	}
	if a.unrouted {
		text += " noprefixroute"
	}
	return text
}

// linkLocal reports whether the address is an IPv6 link-local one.
func (a address) linkLocal() bool {
	return a.prefix.Addr().Is6() && a.prefix.Addr().IsLinkLocalUnicast()
}

// key returns what distinguishes a link's addresses in the kernel: for IPv6
// only the address itself.
func (a address) key() address {
	if a.prefix.Addr().Is6() {
		return address{prefix: netip.PrefixFrom(a.prefix.Addr(), a.prefix.Addr().BitLen())}
	}
	a.unrouted = false
	return a
}

// route is one route, normalized as the kernel reports it. It can be compared with
// ==.
type route struct {
	// nic is its interface's index in the request, index the kernel's, once the
	// NIC is found.
	nic, index  int
	destination netip.Prefix
	gateway     netip.Addr
	source      netip.Addr
	scope       uint8
	onlink      bool
	mtu, advMSS int
	metric      int
	table       int
	// kind is a rtm_type for routes that have only a destination, a metric and a
	// table; 0 for the others.
	kind int
}

// text returns the route as ip-route(8) writes it.
func (r route) text(device string) string {
	var b strings.Builder
	b.WriteString("route ")
	if r.kind != 0 {
		b.WriteString(routeKinds[r.kind] + " ")
	}
	b.WriteString(r.destination.String())
	if r.gateway.IsValid() {
		b.WriteString(" via " + r.gateway.String())
	}
	if r.kind == 0 {
		b.WriteString(" dev " + device)
	}
	if r.source.IsValid() {
		b.WriteString(" src " + r.source.String())
	}
	if r.metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.metric)
	}
	if r.onlink {
		b.WriteString(" onlink")
	}
	if r.mtu != 0 {
		fmt.Fprintf(&b, " mtu %d", r.mtu)
	}
	if r.advMSS != 0 {
		fmt.Fprintf(&b, " advmss %d", r.advMSS)
	}
	if r.table != unix.RT_TABLE_MAIN {
		fmt.Fprintf(&b, " table %d", r.table)
	}
	return b.String()
}

// neighbour is one permanent entry of the neighbour table. It can be compared
// with ==.
type neighbour struct {
	nic, index int
	address    netip.Addr
	mac        [macLen]byte
}

func (n neighbour) text(device string) string {
	return fmt.Sprintf("neighbour %s at %s dev %s", n.address, net.HardwareAddr(n.mac[:]), device)
}

// locate sets the kernel's index of each NIC in everything that refers to it.
func (s *state) locate(indexes []int) {
	for i := range s.nics {
		s.nics[i].index = indexes[i]
	}
	for i := range s.routes {
		if s.routes[i].kind == 0 {
			s.routes[i].index = indexes[s.routes[i].nic]
		}
	}
	for i := range s.neighbours {
		s.neighbours[i].index = indexes[s.neighbours[i].nic]
	}
}

// leaveOutMissing removes the NICs that were not found, with all that refers to them.
func (s *state) leaveOutMissing() {
	missing := func(i int) bool { return s.nics[i].index == 0 }
	s.routes = slices.DeleteFunc(s.routes, func(r route) bool { return r.kind == 0 && missing(r.nic) })
	s.neighbours = slices.DeleteFunc(s.neighbours, func(n neighbour) bool { return missing(n.nic) })
	place := make([]int, len(s.nics)) // in the NICs that stay, by that in the request
	var stay []nic
	for i, nic := range s.nics {
		place[i] = len(stay)
		if nic.index != 0 {
			stay = append(stay, nic)
		}
	}
	s.nics = stay
	for i := range s.routes {
		if s.routes[i].kind == 0 {
			s.routes[i].nic = place[s.routes[i].nic]
		}
	}
	for i := range s.neighbours {
		s.neighbours[i].nic = place[s.neighbours[i].nic]
	}
}
