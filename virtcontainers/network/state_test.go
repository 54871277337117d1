package network

import (
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// newRoutedPod is a pod with routes of many shapes and neighbours.
func newRoutedPod(t *testing.T) *pod {
	t.Helper()
	p := newPod(t)
	eth1 := p.veth(t, "eth1", "10.2.0.2/24", "10.2.0.3/24", "fd02::2/64").Attrs().Index
	eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
	gone := p.veth(t, "bare").Attrs().Index
	p.address(t, "eth1", "fe80::6/64")
	must(t, p.ns.AddrAdd(linkAt(eth1), &netlink.Addr{IPNet: network("10.6.0.1/32"), Peer: network("10.6.0.2/24")}))
	p.route(t, netlink.Route{LinkIndex: eth0}, "0.0.0.0/0", "10.1.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0}, "::/0", "fd01::1")
	p.route(t, netlink.Route{LinkIndex: eth1, Scope: netlink.SCOPE_LINK, MTU: 1300, Src: []byte{10, 2, 0, 3}}, "10.20.0.0/16", "")
	p.route(t, netlink.Route{LinkIndex: eth1, Priority: 7}, "10.21.0.0/16", "10.2.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0, Flags: int(netlink.FLAG_ONLINK)}, "10.22.0.0/16", "169.254.1.1")
	p.route(t, netlink.Route{LinkIndex: eth1, Protocol: unix.RTPROT_STATIC}, "fd20::/32", "fe80::1")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 100}, "10.23.0.0/16", "10.2.0.1")
	p.route(t, netlink.Route{LinkIndex: gone, Scope: netlink.SCOPE_LINK}, "10.24.0.0/16", "")
	p.route(t, netlink.Route{Type: unix.RTN_BLACKHOLE}, "10.25.0.0/16", "")
	p.route(t, netlink.Route{MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: eth0, Gw: []byte{10, 1, 0, 9}}, {LinkIndex: eth1, Gw: []byte{10, 2, 0, 9}},
	}}, "10.26.0.0/16", "")
	p.route(t, netlink.Route{LinkIndex: eth0, Priority: 1}, "10.26.0.0/16", "10.1.0.8")
	for _, ip := range [][]byte{{10, 1, 0, 1}, {0xfd, 1, 15: 1}} {
		must(t, p.ns.NeighAdd(&netlink.Neigh{LinkIndex: eth0, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: []byte{2, 0, 0, 0, 0, 9}}))
	}
	must(t, p.ns.NeighAdd(&netlink.Neigh{LinkIndex: eth0, State: netlink.NUD_PERMANENT, IP: []byte{10, 1, 0, 6}, HardwareAddr: []byte{3, 0, 0, 0, 0, 6}}))
	must(t, p.ns.NeighAdd(&netlink.Neigh{LinkIndex: eth0, State: netlink.NUD_STALE, IP: []byte{10, 1, 0, 7}, HardwareAddr: []byte{2, 0, 0, 0, 0, 7}}))
	return p
}

func network(s string) *net.IPNet {
	ip, n, _ := net.ParseCIDR(s)
	n.IP = ip
	return n
}

func TestState(t *testing.T) {
	t.Parallel()
	p := newRoutedPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	mac := func(name string) []byte { return linkOf(t, p.ns, name).Attrs().HardwareAddr }
	want := &api.SetNetworkRequest{
		Interfaces: []*api.Interface{
			{PciPath: "01/01", Name: "eth0", Mac: mac("eth0"), Mtu: 1400, Addresses: []*api.Address{{Prefix: "10.1.0.2/24"}, {Prefix: "fd01::2/64"}}},
			{PciPath: "01/02", Name: "eth1", Mac: mac("eth1"), Mtu: 1400, Addresses: []*api.Address{
				{Prefix: "10.2.0.2/24"}, {Prefix: "10.6.0.1/24", Peer: "10.6.0.2"}, {Prefix: "10.2.0.3/24"}, {Prefix: "fd02::2/64"}, {Prefix: "fe80::6/64"},
			}},
		},
		Routes: []*api.Route{
			{Interface: "eth1", Destination: "10.20.0.0/16", Source: "10.2.0.3", Scope: 253, Mtu: 1300},
			{Destination: "10.25.0.0/16", Type: unix.RTN_BLACKHOLE},
			{Interface: "eth1", Destination: "10.21.0.0/16", Gateway: "10.2.0.1", Metric: 7},
			{Interface: "eth0", Destination: "10.22.0.0/16", Gateway: "169.254.1.1", Onlink: true},
			{Interface: "eth0", Destination: "10.26.0.0/16", Gateway: "10.1.0.9"},
			{Interface: "eth0", Destination: "10.26.0.0/16", Gateway: "10.1.0.8", Metric: 1},
			{Interface: "eth1", Destination: "10.26.0.0/16", Gateway: "10.2.0.9", Metric: 2},
			{Interface: "eth1", Destination: "fd20::/32", Gateway: "fe80::1", Metric: 1024},
			{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.1.0.1"},
			{Interface: "eth0", Destination: "::/0", Gateway: "fd01::1", Metric: 1024},
		},
		Neighbours: []*api.Neighbour{
			{Interface: "eth0", Address: "10.1.0.1", Mac: []byte{2, 0, 0, 0, 0, 9}},
			{Interface: "eth0", Address: "10.1.0.6", Mac: []byte{3, 0, 0, 0, 0, 6}}, // of a cluster
			{Interface: "eth0", Address: "fd01::1", Mac: []byte{2, 0, 0, 0, 0, 9}},
		},
	}
	if diff := cmp.Diff(want, n.State(), protocmp.Transform()); diff != "" {
		t.Errorf("State (-want +got):\n%s", diff)
	}
}

// The guest's kernel makes what router advertisements say, and keeps it up to
// date. Routes of one metric keep their order: the first is used.
func TestStateOfRoutes(t *testing.T) {
	route := func(index int, protocol netlink.RouteProtocol, dst, gw string) netlink.Route {
		family := unix.AF_INET
		to := network(dst)
		if to.IP.To4() == nil {
			family = unix.AF_INET6
		}
		return netlink.Route{LinkIndex: index, Type: unix.RTN_UNICAST, Family: family, Dst: to, Gw: net.ParseIP(gw), Protocol: protocol}
	}
	v := &view{
		links: []link{
			{index: 2, name: "zz", addrs: []netlink.Addr{
				{IPNet: network("fd01::2/64")}, {IPNet: network("fd01::a/64"), Flags: unix.IFA_F_MANAGETEMPADDR}, {IPNet: network("fd01::b/64"), Flags: unix.IFA_F_TEMPORARY},
				{IPNet: network("fe80::1/64"), Flags: unix.IFA_F_TENTATIVE}, {IPNet: network("fe80::2/64"), Flags: unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED},
			}},
			{index: 3, name: "aa"},
		},
		routes: []netlink.Route{
			route(2, unix.RTPROT_BOOT, "0.0.0.0/0", "10.1.0.1"), route(3, unix.RTPROT_BOOT, "0.0.0.0/0", "10.2.0.1"),
			route(2, unix.RTPROT_RA, "::/0", "fe80::1"),
		},
	}
	got, _, err := v.describe(map[int]string{2: "01/01", 3: "01/02"})
	must(t, err)
	var routes []string
	for _, r := range got.GetRoutes() {
		routes = append(routes, r.GetInterface()+" "+r.GetDestination())
	}
	if diff := cmp.Diff([]string{"zz 0.0.0.0/0", "aa 0.0.0.0/0"}, routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	var addrs []string
	for _, a := range got.GetInterfaces()[0].GetAddresses() {
		addrs = append(addrs, a.GetPrefix())
	}
	if diff := cmp.Diff([]string{"fd01::2/64", "fe80::1/64"}, addrs); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	many := func(n int) []netlink.Addr {
		var addrs []netlink.Addr
		for i := range n {
			addrs = append(addrs, netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 1, byte(i>>8), byte(i)).To4(), Mask: net.CIDRMask(16, 32)}})
		}
		return addrs
	}
	routes := func(n int) []netlink.Route {
		var all []netlink.Route
		for i := range n {
			all = append(all, netlink.Route{LinkIndex: 2, Type: unix.RTN_UNICAST, Family: unix.AF_INET, Dst: netlink.NewIPNet(net.IPv4(11, 1, byte(i>>8), byte(i)).To4())})
		}
		return all
	}
	neighs := func(n int) []netlink.Neigh {
		var all []netlink.Neigh
		for i := range n {
			all = append(all, netlink.Neigh{
				LinkIndex: 2, State: netlink.NUD_PERMANENT, Family: unix.AF_INET,
				IP: net.IPv4(10, 1, byte(i>>8), byte(i)), HardwareAddr: []byte{2, 0, 0, 0, byte(i >> 8), byte(i)},
			})
		}
		return all
	}
	rules := func(n int) policy {
		var p policy
		for i := range n {
			p.rules = append(p.rules, foundRule{Rule: fibrule.Rule{Priority: uint32(i + 1), Action: fibrule.Lookup, Table: uint32(i + 1)}})
		}
		return p
	}
	of := func(addrs, nroutes, nneighs int) *view {
		return &view{
			links: []link{{index: 2, name: "eth0", addrs: many(addrs)}}, routes: routes(nroutes), neighs: neighs(nneighs), policy: rules(api.MaxRules),
		}
	}
	for name, tt := range map[string]struct {
		view *view
		ok   bool
	}{
		"all":        {of(api.MaxAddresses, api.MaxRoutes, api.MaxNeighbours), true},
		"addresses":  {of(api.MaxAddresses+1, 0, 0), false},
		"routes":     {of(1, api.MaxRoutes+1, 0), false},
		"neighbours": {of(1, 0, api.MaxNeighbours+1), false},
		"rules":      {&view{policy: rules(api.MaxRules + 1)}, false},
	} {
		_, _, err := tt.view.describe(map[int]string{2: "01/01"})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStateFollows(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	before := n.State()
	eth0 := linkOf(t, p.ns, "eth0")
	must(t, p.ns.LinkSetMTU(eth0, 1280))
	must(t, p.ns.LinkSetARPOff(eth0))
	addrs, err := p.ns.AddrList(eth0, netlink.FAMILY_V4)
	must(t, err)
	must(t, p.ns.AddrDel(eth0, &addrs[0]))
	must(t, n.Plug(t.Context(), vm))
	want := []*api.Interface{{
		PciPath: "01/01", Name: "eth0", Mac: eth0.Attrs().HardwareAddr, Mtu: 1280, NoArp: true, Addresses: []*api.Address{{Prefix: "fd01::2/64"}},
	}}
	if diff := cmp.Diff(want, n.State().GetInterfaces(), protocmp.Transform()); diff != "" {
		t.Errorf("State (-want +got):\n%s", diff)
	}
	if len(vm.order) != 1 {
		t.Errorf("NICs %v: a change of attributes made another", vm.order)
	}
	if before.GetInterfaces()[0].GetMtu() != 1400 {
		t.Error("an earlier State was changed")
	}
	if mtu := linkOf(t, p.ns, tapName(eth0.Attrs().Index)).Attrs().MTU; mtu != 1280 {
		t.Errorf("the tap's MTU is %d", mtu)
	}
}

// The guest gets no route to an address's network if the namespace has none, as
// after CNI's ptp plugin.
func TestStateWithoutPrefixRoute(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth0 := linkOf(t, p.ns, "eth0")
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: network("10.1.0.0/24"), Scope: netlink.SCOPE_LINK}))
	must(t, n.Plug(t.Context(), vm))
	want := []*api.Address{{Prefix: "10.1.0.2/24", NoPrefixRoute: true}, {Prefix: "fd01::2/64"}}
	if diff := cmp.Diff(want, n.State().GetInterfaces()[0].GetAddresses(), protocmp.Transform()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// A route stays when the one that its gateway was checked against has gone. The
// guest's kernel would refuse it, and the pod would not start.
func TestStateOfUncoveredGateways(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
	p.route(t, netlink.Route{LinkIndex: eth0, Scope: netlink.SCOPE_LINK}, "10.5.0.0/16", "")
	p.route(t, netlink.Route{LinkIndex: eth0}, "0.0.0.0/0", "10.1.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0}, "10.6.0.0/16", "10.5.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0}, "::/0", "fd01::1")
	p.route(t, netlink.Route{LinkIndex: eth0}, "fd06::/64", "fe80::1")
	settle(t, p.ns)
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth0, Dst: network("10.1.0.0/24"), Scope: netlink.SCOPE_LINK}))
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth0, Dst: network("fd01::/64")}))
	must(t, n.Plug(t.Context(), vm))
	want := []*api.Route{
		{Interface: "eth0", Destination: "10.5.0.0/16", Scope: unix.RT_SCOPE_LINK},
		{Interface: "eth0", Destination: "10.6.0.0/16", Gateway: "10.5.0.1"},
		{Interface: "eth0", Destination: "fd06::/64", Gateway: "fe80::1", Metric: 1024},
		{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.1.0.1", Onlink: true},
		{Interface: "eth0", Destination: "::/0", Gateway: "fd01::1", Metric: 1024, Onlink: true},
	}
	if diff := cmp.Diff(want, n.State().GetRoutes(), protocmp.Transform()); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// Routes that programs mark as the kernel's are the guest's too: its kernel makes
// only those to the networks of its addresses, with its own metric.
func TestStateOfRoutesMarkedAsTheKernels(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
	eth1 := p.veth(t, "eth1", "10.2.0.2/24", "fd02::2/64").Attrs().Index
	p.route(t, netlink.Route{LinkIndex: eth0, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL}, "10.30.0.0/16", "")
	p.route(t, netlink.Route{LinkIndex: eth0, Protocol: unix.RTPROT_KERNEL}, "0.0.0.0/0", "10.1.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0, Protocol: unix.RTPROT_KERNEL, Priority: 1024}, "fd30::/64", "")
	p.route(t, netlink.Route{LinkIndex: eth0, Protocol: unix.RTPROT_KERNEL, Priority: 1024}, "::/0", "fd01::1")
	settle(t, p.ns)
	// As with "ip address add ... metric".
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth1, Dst: network("10.2.0.0/24"), Scope: netlink.SCOPE_LINK}))
	p.route(t, netlink.Route{LinkIndex: eth1, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL, Src: []byte{10, 2, 0, 2}, Priority: 100}, "10.2.0.0/24", "")
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth1, Dst: network("fd02::/64")}))
	p.route(t, netlink.Route{LinkIndex: eth1, Protocol: unix.RTPROT_KERNEL, Priority: 100}, "fd02::/64", "")
	must(t, n.Plug(t.Context(), vm))
	addrs := []*api.Address{{Prefix: "10.2.0.2/24", NoPrefixRoute: true}, {Prefix: "fd02::2/64", NoPrefixRoute: true}}
	if diff := cmp.Diff(addrs, n.State().GetInterfaces()[1].GetAddresses(), protocmp.Transform()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	routes := []*api.Route{
		{Interface: "eth1", Destination: "10.2.0.0/24", Source: "10.2.0.2", Scope: unix.RT_SCOPE_LINK, Metric: 100},
		{Interface: "eth0", Destination: "10.30.0.0/16", Scope: unix.RT_SCOPE_LINK},
		{Interface: "eth1", Destination: "fd02::/64", Metric: 100},
		{Interface: "eth0", Destination: "fd30::/64", Metric: 1024},
		{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.1.0.1"},
		{Interface: "eth0", Destination: "::/0", Gateway: "fd01::1", Metric: 1024},
	}
	if diff := cmp.Diff(routes, n.State().GetRoutes(), protocmp.Transform()); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// CNI's routes have an MTU, a metric and an advertised segment size. Others are
// left out, and the log says so.
func TestStateOfRouteMetrics(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth0 := linkOf(t, p.ns, "eth0").Attrs().Index
	p.route(t, netlink.Route{LinkIndex: eth0, AdvMSS: 1200, MTU: 1300, Realm: 5}, "10.30.0.0/16", "10.1.0.1")
	p.route(t, netlink.Route{LinkIndex: eth0, AdvMSS: 1220, InitCwnd: 20, QuickACK: 1, Congctl: "reno"}, "fd30::/64", "fd01::1")
	p.route(t, netlink.Route{AdvMSS: 1210, MultiPath: []*netlink.NexthopInfo{
		{LinkIndex: eth0, Gw: []byte{10, 1, 0, 1}}, {LinkIndex: eth0, Gw: []byte{10, 1, 0, 3}},
	}}, "10.31.0.0/16", "")
	must(t, n.Plug(t.Context(), vm))
	routes := []*api.Route{
		{Interface: "eth0", Destination: "10.30.0.0/16", Gateway: "10.1.0.1", Mtu: 1300, AdvMss: 1200},
		{Interface: "eth0", Destination: "10.31.0.0/16", Gateway: "10.1.0.1", AdvMss: 1210},
		{Interface: "eth0", Destination: "10.31.0.0/16", Gateway: "10.1.0.3", Metric: 1, AdvMss: 1210},
		{Interface: "eth0", Destination: "fd30::/64", Gateway: "fd01::1", Metric: 1024, AdvMss: 1220},
	}
	if diff := cmp.Diff(routes, n.State().GetRoutes(), protocmp.Transform()); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if list, err := p.ns.RouteList(nil, netlink.FAMILY_V4); err != nil || slices.ContainsFunc(list, func(r netlink.Route) bool { return r.Realm != 0 }) {
		if want := "realm of the route to 10.30.0.0/16: a guest gets only its mtu and advmss"; !n.told[want] {
			t.Errorf("the log has %v, not %q, %v", n.told, want, err)
		}
	}
	if want := "initcwnd, quickack, congctl of the route to fd30::/64: a guest gets only its mtu and advmss"; !n.told[want] {
		t.Errorf("the log has %v, not %q", n.told, want)
	}
}

// A link is down in the guest while it is down in the namespace, unless packets
// do not pass it.
func TestStateOfLinkThatIsDown(t *testing.T) {
	t.Parallel()
	for _, model := range []Model{TCFilter, Macvtap, None} {
		p := newPod(t)
		eth0 := linkOf(t, p.ns, "eth0")
		p.route(t, netlink.Route{LinkIndex: eth0.Attrs().Index}, "0.0.0.0/0", "10.1.0.1")
		must(t, p.ns.LinkSetDown(eth0))
		n, vm := p.open(t, Options{Model: model}), newMachine(t)
		must(t, n.Plug(t.Context(), vm))
		got := n.State().GetInterfaces()[0]
		if len(n.State().GetRoutes()) > 0 || got.GetDown() != (model != None) {
			t.Errorf("%s: the guest is told %v", model, n.State())
		}
		before, err := n.look(t.Context())
		must(t, err)
		must(t, p.ns.LinkSetUp(eth0))
		after, err := n.look(t.Context())
		must(t, err)
		if model != None && before.fingerprint() == after.fingerprint() {
			t.Errorf("%s: a link that is up now is no change", model)
		}
		must(t, n.Plug(t.Context(), vm))
		if n.State().GetInterfaces()[0].GetDown() {
			t.Errorf("%s: the guest is told %v", model, n.State())
		}
	}
}
