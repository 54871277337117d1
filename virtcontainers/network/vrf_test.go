package network

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
)

// wantOfVRF is what the guest has of a link in a VRF with the address 10.2.0.2/24: the route
// to its network. The log names the others of the VRF's table.
var (
	wantOfVRF = []*api.Address{{Prefix: "10.2.0.2/24"}}
	vrfNotes  = []string{
		"route to 0.0.0.0/0: in table 5 of a VRF, which a guest does not have",
		"route to 10.9.0.0/16: in table 5 of a VRF, which a guest does not have",
	}
)

func TestDescribeVRF(t *testing.T) {
	t.Parallel()
	route := func(table int, protocol netlink.RouteProtocol, kind int, to, gateway string) netlink.Route {
		r := netlink.Route{LinkIndex: 2, Family: unix.AF_INET, Table: table, Protocol: protocol, Type: kind, Dst: network(to)}
		if gateway != "" {
			r.Gw = network(gateway).IP
		}
		return r
	}
	v := &view{
		links: []link{{index: 2, name: "eth1", up: true, addrs: []netlink.Addr{{IPNet: network("10.2.0.2/24")}}, table: 5}},
		names: map[int]string{2: "eth1"},
		routes: []netlink.Route{
			route(5, unix.RTPROT_BOOT, unix.RTN_UNICAST, "0.0.0.0/0", "10.2.0.1/32"),
			route(5, unix.RTPROT_KERNEL, unix.RTN_UNICAST, "10.2.0.0/24", ""),
			route(5, unix.RTPROT_KERNEL, unix.RTN_LOCAL, "10.2.0.2/32", ""),
			route(5, unix.RTPROT_KERNEL, unix.RTN_BROADCAST, "10.2.0.255/32", ""),
			route(5, unix.RTPROT_STATIC, unix.RTN_UNICAST, "10.9.0.0/16", "10.2.0.1/32"),
			route(6, unix.RTPROT_STATIC, unix.RTN_UNICAST, "10.8.0.0/16", "10.2.0.1/32"),
		},
	}
	state, notes, err := v.describe(map[int]string{2: "01/01"})
	must(t, err)
	if diff := cmp.Diff(wantOfVRF, state.GetInterfaces()[0].GetAddresses(), protocmp.Transform()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if len(state.GetRoutes()) > 0 {
		t.Errorf("routes %v", state.GetRoutes())
	}
	if diff := cmp.Diff(vrfNotes, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	v.routes = v.routes[2:] // without the kernel's
	state, _, err = v.describe(map[int]string{2: "01/01"})
	if must(t, err); !state.GetInterfaces()[0].GetAddresses()[0].GetNoPrefixRoute() {
		t.Error("the guest makes a route that was removed")
	}
}

// CNI's plugin vrf puts a link into a VRF, with its routes.
func TestStateOfVRF(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	err := p.ns.LinkAdd(&netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue", TxQLen: -1}, Table: 5})
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no VRFs")
	}
	must(t, err)
	blue := linkOf(t, p.ns, "blue")
	must(t, p.ns.LinkSetUp(blue))
	eth1 := p.veth(t, "eth1")
	must(t, p.ns.LinkSetMasterByIndex(eth1, blue.Attrs().Index))
	p.address(t, "eth1", "10.2.0.2/24")
	p.route(t, netlink.Route{LinkIndex: eth1.Attrs().Index, Table: 5}, "0.0.0.0/0", "10.2.0.1")
	p.route(t, netlink.Route{LinkIndex: eth1.Attrs().Index, Table: 5}, "10.9.0.0/16", "10.2.0.1")
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	if got := interfaces(n); !cmp.Equal(got, []string{"eth0", "eth1"}) {
		t.Fatalf("the guest has %v", got)
	}
	if diff := cmp.Diff(wantOfVRF, n.State().GetInterfaces()[1].GetAddresses(), protocmp.Transform()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	for _, note := range vrfNotes {
		if !n.told[note] {
			t.Errorf("not in the log: %s", note)
		}
	}
}
