package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// routing collects the routes that the guest gets.
type routing struct {
	names map[int]string           // the links with a NIC, by index
	all   map[int]string           // every link
	local map[netip.Addr]bool      // the guest's own addresses
	nets  map[place][]netip.Prefix // the networks on each link
	odd   map[routeKey]bool        // see view
	// tables are those in which the guest looks routes up.
	tables map[int]bool
	vrfs   map[int]bool // the tables of VRFs that have links with a NIC
	// made has the networks to which the kernel makes routes, by the index of the
	// link.
	made   map[int]map[netip.Prefix]bool
	routes []*api.Route
	spread []spread
	notes  []string
}

func newRouting(v *view) *routing {
	return &routing{
		names: make(map[int]string), all: v.names, odd: v.oddRoutes, local: make(map[netip.Addr]bool),
		nets: make(map[place][]netip.Prefix), made: make(map[int]map[netip.Prefix]bool),
		tables: map[int]bool{0: true, unix.RT_TABLE_DEFAULT: true}, vrfs: v.vrfTables(),
	}
}

// place is a link, by its name, in a table, which is 0 for the main one.
type place struct {
	link  string
	table uint32
}

// look adds the tables that rules name.
func (r *routing) look(rules []*api.Rule) {
	for _, rule := range rules {
		r.tables[tableOf(int(rule.GetTable()))] = true
	}
}

// madeFor notes the network of an address that a link has, also of one that the
// guest does not get.
func (r *routing) madeFor(link int, network netip.Prefix) {
	if r.made[link] == nil {
		r.made[link] = make(map[netip.Prefix]bool)
	}
	r.made[link][network] = true
}

// own adds an address of the guest's.
func (r *routing) own(link string, prefix netip.Prefix, peer string, unrouted bool) {
	r.local[prefix.Addr()] = true
	if !unrouted {
		at := place{link: link}
		r.nets[at] = append(r.nets[at], networkOf(prefix, peer))
	}
}

// spread is a multipath route.
type spread struct {
	route *api.Route
	hops  []*netlink.NexthopInfo
}

// add adds a route. It silently skips those of tables that neither a rule nor a VRF names, and what
// the guest's kernel makes too. As given ones they would be in the way of the guest's,
// and be removed when they expire here.
func (r *routing) add(route netlink.Route) {
	if route.Dst == nil {
		return
	}
	to := prefixOf(route.Dst).Masked()
	if !r.tables[route.Table] {
		r.noteVRF(route, to)
		return
	}
	if r.madeByKernel(route, to) {
		return
	}
	switch {
	case to.Addr().Is4In6():
		r.notef("route to %s: an IPv4 network in IPv6, which a guest does not get", to)
		return
	case route.Type != unix.RTN_UNICAST:
		r.addWithoutHop(route, to)
		return
	case route.Encap != nil || route.MPLSDst != nil || route.Tos != 0 || r.odd[keyOf(route)]:
		r.notef("route to %s: with encapsulation, TOS or a network that packets are from, which a guest does not get", to)
		return
	}
	made := &api.Route{
		Destination: to.String(), Source: r.source(route, to), Scope: uint32(route.Scope),
		Mtu: uint32(route.MTU), Metric: uint32(route.Priority), AdvMss: uint32(route.AdvMSS), // the kernel's are 32 bits wide
		Table: uint32(route.Table),
	}
	if dropped := otherMetrics(route); dropped != "" {
		r.notef("%s of the route to %s: a guest gets only its mtu and advmss", dropped, to)
	}
	if len(route.MultiPath) > 0 {
		r.spread = append(r.spread, spread{made, route.MultiPath})
		return
	}
	if route.Via != nil {
		r.notef("route to %s: its gateway is of the other address family, which a guest does not get", to)
		return
	}
	r.over(made, hop{route.LinkIndex, addrOf(route.Gw, route.Family), route.Flags})
}

// madeByKernel reports whether a route is one that the guest's kernel makes too:
// to the network of an address, or from a router's advertisement, which reaches
// the guest. Programs mark routes as the kernel's as well, and copy the kernel's to
// other tables (CNI's sbr).
func (r *routing) madeByKernel(route netlink.Route, to netip.Prefix) bool {
	_, given := r.names[route.LinkIndex]
	switch {
	case route.Table != 0:
		return false
	case route.Protocol == unix.RTPROT_RA:
		return true
	case route.Protocol != unix.RTPROT_KERNEL || hasGateway(route):
		return false
	case !given || route.Type != unix.RTN_UNICAST:
		return true
	default:
		return route.Priority == kernelMetric(to) && (to.Addr().Is6() || r.made[route.LinkIndex][to])
	}
}

// kernelMetric is the metric of the kernel's routes to networks of addresses,
// unless the address has one (net/ipv4/fib_frontend.c, fib_add_ifaddr;
// net/ipv6/addrconf.c, addrconf_prefix_route).
func kernelMetric(to netip.Prefix) int {
	if to.Addr().Is6() {
		return 256 // IP6_RT_PRIO_ADDRCONF
	}
	return 0
}

// otherMetrics names the metrics of a route that the guest does not get
// (ip-route(8)).
func otherMetrics(route netlink.Route) string {
	var names []string
	for _, metric := range []struct {
		name string
		set  bool
	}{
		{"lock", route.MTULock || route.RtoMinLock}, {"window", route.Window != 0}, {"rtt", route.Rtt != 0}, {"rttvar", route.RttVar != 0},
		{"ssthresh", route.Ssthresh != 0}, {"cwnd", route.Cwnd != 0}, {"reordering", route.Reordering != 0}, {"hoplimit", route.Hoplimit != 0},
		{"initcwnd", route.InitCwnd != 0}, {"features", route.Features != 0}, {"rto_min", route.RtoMin != 0}, {"initrwnd", route.InitRwnd != 0},
		{"quickack", route.QuickACK != 0}, {"congctl", route.Congctl != ""}, {"fastopen_no_cookie", route.FastOpenNoCookie != 0}, {"realm", route.Realm != 0},
	} {
		if metric.set {
			names = append(names, metric.name)
		}
	}
	return strings.Join(names, ", ")
}

func hasGateway(route netlink.Route) bool {
	return route.Gw != nil || route.Via != nil || slices.ContainsFunc(route.MultiPath, func(h *netlink.NexthopInfo) bool {
		return h.Gw != nil || h.Via != nil
	})
}

// hop is a route's next hop.
type hop struct {
	link    int
	gateway netip.Addr // not valid: none
	flags   int
}

// over adds a route over one hop.
func (r *routing) over(route *api.Route, to hop) {
	name, given := r.names[to.link]
	if to.gateway.IsValid() && !to.gateway.IsUnspecified() && !isStation(to.gateway) {
		r.notef("route to %s: by way of %s, which is not a machine's address", route.Destination, to.gateway)
		return
	}
	if !given {
		r.notef("route to %s: over link %s, which has no NIC or is down", route.Destination, cmp.Or(r.all[to.link], strconv.Itoa(to.link)))
		return
	}
	route.Interface, route.Onlink = name, to.flags&unix.RTNH_F_ONLINK != 0
	if to.gateway.IsValid() && !to.gateway.IsUnspecified() {
		route.Gateway = to.gateway.String()
	}
	r.routes = append(r.routes, route)
}

// source returns a route's preferred source address, if the guest has it.
func (r *routing) source(route netlink.Route, to netip.Prefix) string {
	src := addrOf(route.Src, route.Family)
	switch {
	case !src.IsValid() || src.IsUnspecified():
		return ""
	case !r.local[src]:
		r.notef("source %s of the route to %s: no address of a link with a NIC", src, to)
		return ""
	}
	return src.String()
}

// finish adds the multipath routes, one route for each hop, and sorts all: a
// route follows those that its gateway may need. Of several with the same metric
// the kernel uses the first, so they keep their order.
func (r *routing) finish() []*api.Route {
	r.addSpread()
	r.markOnlink()
	slices.SortStableFunc(r.routes, func(a, b *api.Route) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(a.GetTable(), b.GetTable()),
			cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Metric, b.Metric),
		)
	})
	return r.routes
}

// addSpread gives each hop its own route. Of two routes to one network
// with the same metric a kernel keeps only one (IPv4) or merges them into a
// multipath route (IPv6); so each hop after the first gets the next free
// metric, and is used when those before it are gone.
func (r *routing) addSpread() {
	type key struct {
		destination   string
		metric, table uint32
	}
	taken := make(map[key]bool)
	for _, route := range r.routes {
		taken[key{route.Destination, route.Metric, route.Table}] = true
	}
	for _, s := range r.spread {
		for _, h := range s.hops {
			one := proto.CloneOf(s.route)
			for taken[key{one.Destination, one.Metric, one.Table}] {
				one.Metric++
			}
			if h.Via != nil || h.Encap != nil {
				r.notef("route to %s: a hop with encapsulation or a gateway of the other family, which a guest does not get", one.Destination)
				continue
			}
			before := len(r.routes)
			r.over(one, hop{h.LinkIndex, addrOf(h.Gw, familyOf(one)), h.Flags})
			taken[key{one.Destination, one.Metric, one.Table}] = len(r.routes) > before
		}
	}
}

// markOnlink marks the routes whose gateway is in no network of their link. The
// kernel checks that when a route is added, and keeps the route when the network
// is removed (net/ipv4/fib_semantics.c, fib_check_nh_v4_gw; net/ipv6/route.c,
// ip6_route_check_nh): the guest's would refuse it.
func (r *routing) markOnlink() {
	for _, route := range r.routes {
		to, err := netip.ParsePrefix(route.Destination)
		if err == nil && route.Gateway == "" && (to.Addr().Is6() || route.Scope >= unix.RT_SCOPE_LINK) {
			at := place{route.Interface, route.Table}
			r.nets[at] = append(r.nets[at], to)
		}
	}
	for _, route := range r.routes {
		gateway, err := netip.ParseAddr(route.Gateway)
		if err != nil || gateway.Is6() && gateway.IsLinkLocalUnicast() {
			continue
		}
		covers := func(n netip.Prefix) bool { return n.Contains(gateway) }
		// The kernel looks in the route's table first.
		route.Onlink = route.Onlink || !slices.ContainsFunc(r.nets[place{route.Interface, route.Table}], covers) &&
			!slices.ContainsFunc(r.nets[place{link: route.Interface}], covers)
	}
}

// familyOf returns a route's address family.
func familyOf(r *api.Route) int {
	if prefix, err := netip.ParsePrefix(r.Destination); err == nil && prefix.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// rank orders routes by dependency: those without a gateway first, then those
// to networks, then the default routes.
func rank(r *api.Route) int {
	prefix, _ := netip.ParsePrefix(r.Destination)
	switch {
	case r.Gateway == "":
		return 0
	case prefix.Bits() > 0:
		return 1
	default:
		return 2
	}
}

// addWithoutHop adds a route of another type than usual.
func (r *routing) addWithoutHop(route netlink.Route, to netip.Prefix) {
	if !withoutHop(route) || route.Tos != 0 {
		r.notef("route to %s: of type %s, which a guest does not get", to, typeName(route.Type))
		return
	}
	r.routes = append(r.routes, &api.Route{
		Destination: to.String(), Metric: uint32(route.Priority), Table: uint32(route.Table), Type: uint32(route.Type),
	})
}

// withoutHop reports whether a route of another type than usual is over no link, or
// leads to the namespace's processes, as for transparent proxies.
func withoutHop(route netlink.Route) bool {
	switch route.Type {
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW:
		return true
	case unix.RTN_LOCAL:
		return route.LinkIndex == loIndex && !hasGateway(route)
	}
	return false
}

// loIndex is the kernel's index of lo in each network namespace (include/net/flow.h,
// LOOPBACK_IFINDEX).
const loIndex = 1

func (r *routing) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func typeName(kind int) string {
	switch kind {
	case unix.RTN_LOCAL:
		return "local"
	case unix.RTN_BROADCAST:
		return "broadcast"
	case unix.RTN_ANYCAST:
		return "anycast"
	case unix.RTN_MULTICAST:
		return "multicast"
	default:
		return strconv.Itoa(kind)
	}
}
