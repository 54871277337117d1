package network

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// vpn makes a link tun0 and the default route over it, as a VPN does in a container.
func (g *guest) vpn() {
	g.t.Helper()
	must(g.t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, PeerName: "tun1"}))
	tun, err := netlink.LinkByName("tun0")
	must(g.t, err)
	must(g.t, netlink.LinkSetUp(tun))
	must(g.t, netlink.RouteReplace(&netlink.Route{LinkIndex: tun.Attrs().Index, Dst: ipNet("0.0.0.0/0"), Scope: netlink.SCOPE_LINK}))
}

// What costs no route puts none back: an address that is new, an MTU that IPv6 can use.
func TestNewAddressLeavesContainersRoutes(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := oneNIC()
		g.apply(want)
		g.vpn()
		want.Interfaces[0].Addresses = append(want.Interfaces[0].Addresses, &api.Address{Prefix: "10.55.0.1/24"}, &api.Address{Prefix: "fd55::1/64"})
		want.Interfaces[0].Mtu = 1450
		g.apply(want)
		g.has("address 10.55.0.1/24 dev eth0", "address fd55::1/64 dev eth0", "link eth0 mac "+macText(1)+" mtu 1450 up true arp true", "route 0.0.0.0/0 dev tun0")
		g.hasNot("route 0.0.0.0/0 via 10.88.0.1 dev eth0")
	})
}

// Routes that an address took with it come back with it, and so do those of IPv6 that a
// small MTU cost.
func TestLostAddressBringsRoutesBack(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := oneNIC()
		g.apply(want)
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.AddrDel(eth0, address{prefix: netip.MustParsePrefix("10.88.0.2/16")}.netlink()))
		must(t, netlink.LinkSetMTU(eth0, minMTU6-1))
		want.Interfaces[0].Mtu = 1450
		g.apply(want)
		g.has("route 0.0.0.0/0 via 10.88.0.1 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024")
	})
}

// With an address the kernel removes the routes of other NICs that have it as their source.
func TestSourceOfAnotherNIC(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		want.Routes = append(want.Routes, &api.Route{Interface: "net1", Destination: "10.210.0.0/16", Gateway: "172.31.0.1", Onlink: true, Source: "10.88.0.2"})
		g.apply(want)
		want.Interfaces[0].Addresses[0] = &api.Address{Prefix: "10.88.0.2/20"}
		g.apply(want)
		g.has("address 10.88.0.2/20 dev eth0", "route 10.210.0.0/16 via 172.31.0.1 dev net1 src 10.88.0.2 onlink")
	})
}

// A NIC that a container has set down stays down, and keeps nothing else from the guest.
// Its routes come with the first change after the container has raised it.
func TestNICThatAContainerSetDown(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		g.apply(want)
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		must(t, netlink.LinkSetDown(eth0))

		down := "link eth0 mac " + macText(1) + " mtu 1400 up false arp true"
		want.Neighbours = append(want.Neighbours, &api.Neighbour{Interface: "net1", Address: "192.168.7.1", Mac: mac(0x77)})
		g.apply(want)
		g.has(down, "neighbour 192.168.7.1 at "+macText(0x77)+" dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink")

		want.Routes[0].Gateway, want.Dns = "10.88.0.3", &api.DNS{Servers: []string{"1.2.3.4"}}
		want.Rules = []*api.Rule{{Priority: 500, Table: 77, Action: fibrule.Lookup}}
		want.Interfaces[0].Mtu = 1379
		g.apply(want)
		g.has("link eth0 mac " + macText(1) + " mtu 1379 up false arp true")
		g.resolves("nameserver 1.2.3.4\n")

		must(t, netlink.LinkSetUp(eth0))
		want.Neighbours = want.Neighbours[:2]
		g.apply(want)
		g.has("route 0.0.0.0/0 via 10.88.0.3 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024", "neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0")
	})
}
