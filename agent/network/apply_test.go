package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

func TestApply(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		changes := g.apply(twoNICs())
		g.has(
			"link eth0 mac "+macText(1)+" mtu 1400 up true arp true",
			"link net1 mac "+macText(2)+" mtu 1500 up true arp true",
			"address 10.88.0.2/16 dev eth0", "address fd00::2/64 dev eth0",
			"address 192.168.7.9/32 dev net1", "address fd01::9/128 dev net1",
			"route 0.0.0.0/0 via 10.88.0.1 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024",
			"route 172.16.0.0/12 via 192.168.7.1 dev net1 src 192.168.7.9 metric 7 mtu 1300 advmss 1200",
			"route 192.168.7.1/32 dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink",
			"route fd02::/48 via fe80::1 dev net1 src fd01::9 metric 3 mtu 1280 advmss 1220",
			"neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0", "neighbour fe80::1 at "+macText(0x12)+" dev net1",
		)
		g.resolves("nameserver 10.96.0.10\nnameserver fd00::a\nsearch default.svc svc\noptions ndots:5\n")
		for _, want := range []string{
			"interface eth1 renamed to net1", "interface eth0: MTU set to 1400", "interface net1 set up",
			"address fd01::9/128 added to net1", "route ::/0 via fd00::1 dev eth0 metric 1024 added",
			"neighbour fe80::1 at " + macText(0x12) + " dev net1 added", "resolv.conf written",
		} {
			if !slices.Contains(changes, want) {
				t.Errorf("no change %q in\n%s", want, strings.Join(changes, "\n"))
			}
		}
	})
}

// resolves compares resolv.conf.
func (g *guest) resolves(want string) {
	g.t.Helper()
	text, err := os.ReadFile(g.resolvConf)
	must(g.t, err)
	if diff := cmp.Diff(want, string(text)); diff != "" {
		g.t.Error(diff)
	}
}

// An IPv6 address is usable immediately: there is no duplicate address
// detection.
func TestIPv6IsReady(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		newGuest(t, 2).apply(twoNICs())
		l, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: net.ParseIP("fd00::2")})
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	})
}

func TestApplyFollows(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		g.apply(want)

		want.Interfaces[0].Addresses = []*api.Address{{Prefix: "10.88.0.3/16"}, {Prefix: "fd00::2/48"}}
		want.Interfaces[0].Mtu, want.Interfaces[0].NoArp = 1450, true
		want.Routes = append(want.Routes[:2:2], want.Routes[3],
			&api.Route{Interface: "net1", Destination: "172.16.0.0/12", Gateway: "192.168.7.1", Source: "192.168.7.9", Metric: 7})
		want.Neighbours = []*api.Neighbour{{Interface: "eth0", Address: "10.88.0.1", Mac: mac(0x99)}}
		want.Dns = &api.DNS{Servers: []string{"1.2.3.4"}}
		changes := g.apply(want)
		g.has(
			"link eth0 mac "+macText(1)+" mtu 1450 up true arp false",
			"address 10.88.0.3/16 dev eth0", "address fd00::2/48 dev eth0",
			"route 172.16.0.0/12 via 192.168.7.1 dev net1 src 192.168.7.9 metric 7",
			"route 0.0.0.0/0 via 10.88.0.1 dev eth0",
			"neighbour 10.88.0.1 at "+macText(0x99)+" dev eth0",
		)
		g.hasNot(
			"address 10.88.0.2/16 dev eth0", "address fd00::2/64 dev eth0",
			"route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink",
			"route 172.16.0.0/12 via 192.168.7.1 dev net1 src 192.168.7.9 metric 7 mtu 1300 advmss 1200",
			"neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0", "neighbour fe80::1 at "+macText(0x12)+" dev net1",
		)
		g.resolves("nameserver 1.2.3.4\n")
		for _, change := range changes {
			if strings.Contains(change, "fd01::9/128") || strings.Contains(change, "192.168.7.1/32") {
				t.Errorf("%q, though it was so before", change)
			}
		}
	})
}

func TestApplyNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		g.apply(twoNICs())
		g.apply(&api.SetNetworkRequest{})
		left := slices.DeleteFunc(g.all(), func(s string) bool { return strings.Contains(s, "peer") || strings.Contains(s, "lo") })
		want := []string{
			"link eth0 mac " + macText(1) + " mtu 1400 up false arp true",
			"link net1 mac " + macText(2) + " mtu 1500 up false arp true",
		}
		if diff := cmp.Diff(want, left); diff != "" {
			t.Error(diff)
		}
		if _, err := os.Stat(g.resolvConf); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("resolv.conf is left: %v", err)
		}
		// And again, from the state that this left.
		g.apply(twoNICs())
		g.has("address fd01::9/128 dev net1", "route 0.0.0.0/0 via 10.88.0.1 dev eth0")
	})
}

// What a container of the pod made stays, and so does what the kernel made.
func TestApplyLeavesOthersAlone(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{Interfaces: twoNICs().Interfaces[:1]}
		g.apply(want)
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		others, err := netlink.ParseAddr("10.99.0.1/24")
		must(t, err)
		must(t, netlink.AddrAdd(link, others))
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet("10.77.0.0/16"), Gw: net.ParseIP("10.99.0.2")}))
		must(t, os.WriteFile(g.resolvConf, []byte("nameserver 9.9.9.9\n"), 0o600))
		g.apply(want)
		g.apply(&api.SetNetworkRequest{Interfaces: want.Interfaces, Routes: []*api.Route{{Interface: "eth0", Destination: "10.66.0.0/16", Gateway: "10.99.0.2"}}})
		g.apply(want)
		g.has("address 10.99.0.1/24 dev eth0", "route 10.77.0.0/16 via 10.99.0.2 dev eth0", "route 10.99.0.0/24 dev eth0 src 10.99.0.1", "address 127.0.0.1/8 dev lo")
		g.hasNot("route 10.66.0.0/16 via 10.99.0.2 dev eth0")
		g.resolves("nameserver 9.9.9.9\n")
		if !slices.ContainsFunc(g.all(), func(s string) bool { return strings.HasPrefix(s, "address fe80::") && strings.HasSuffix(s, "dev eth0") }) {
			t.Error("the link-local address is gone")
		}
	})
}

func ipNet(text string) *net.IPNet {
	_, network, _ := net.ParseCIDR(text)
	return network
}

// Conflicting configuration is replaced.
func TestApplyReplaces(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := twoNICs()
		want.Interfaces, want.Routes, want.Neighbours = want.Interfaces[:1], want.Routes[:2], want.Neighbours[:1]
		g.apply(&api.SetNetworkRequest{Interfaces: []*api.Interface{{PciPath: "01/00", Name: "eth0", Mac: mac(1), Mtu: 1400}}})
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		for _, prefix := range []string{"fd00::2/80", "10.88.0.2/16"} {
			other, err := netlink.ParseAddr(prefix)
			must(t, err)
			must(t, netlink.AddrAdd(link, other))
		}
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet("0.0.0.0/0"), Gw: net.ParseIP("10.88.0.77")}))
		must(t, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP("10.88.0.1"), HardwareAddr: mac(0x55),
		}))
		g.apply(want)
		g.has("address fd00::2/64 dev eth0", "address 10.88.0.2/16 dev eth0", "route 0.0.0.0/0 via 10.88.0.1 dev eth0", "neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0")
		g.hasNot("address fd00::2/80 dev eth0", "route 0.0.0.0/0 via 10.88.0.77 dev eth0")
	})
}

func TestApplySwapsNames(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		want.Interfaces[0].Name, want.Interfaces[1].Name = "eth1", "eth0"
		want.Routes = []*api.Route{{Interface: "eth1", Destination: "0.0.0.0/0", Gateway: "10.88.0.1"}}
		want.Neighbours = nil
		g.apply(want)
		g.has("address 10.88.0.2/16 dev eth1", "address 192.168.7.9/32 dev eth0", "route 0.0.0.0/0 via 10.88.0.1 dev eth1")

		want.Interfaces[0].Name, want.Interfaces[1].Name = "eth0", "eth1"
		want.Routes[0].Interface = "eth0"
		g.apply(want)
		g.has("address 10.88.0.2/16 dev eth0", "address fd00::2/64 dev eth0", "address 192.168.7.9/32 dev eth1", "route 0.0.0.0/0 via 10.88.0.1 dev eth0")

		// The name of a NIC that is no longer wanted goes to another.
		want.Interfaces = want.Interfaces[1:]
		want.Interfaces[0].Name, want.Routes = "eth0", nil
		g.apply(want)
		g.has("address 192.168.7.9/32 dev eth0")
		g.hasNot("address 10.88.0.2/16 dev eth0")
	})
}

func TestApplyPointToPoint(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{
			Interfaces: []*api.Interface{{PciPath: "01/00", Name: "ptp", Mac: mac(1), Mtu: 1500, NoArp: true, Addresses: []*api.Address{
				{Prefix: "10.1.0.1/32", Peer: "10.1.0.2"}, {Prefix: "10.1.0.1/24", Peer: "10.3.0.2"}, {Prefix: "fd00::1/128", Peer: "fd00::2"}, {Prefix: "10.2.0.1/24", Peer: "10.2.0.1"},
			}}},
			Routes: []*api.Route{{Interface: "ptp", Destination: "0.0.0.0/0", Gateway: "10.1.0.2"}, {Interface: "ptp", Destination: "::/0"}},
		}
		g.apply(want)
		g.has("address 10.1.0.1 peer 10.1.0.2/32 dev ptp", "address 10.1.0.1 peer 10.3.0.2/24 dev ptp", "address fd00::1 peer fd00::2/128 dev ptp",
			"address 10.2.0.1/24 dev ptp", "route 0.0.0.0/0 via 10.1.0.2 dev ptp", "route ::/0 dev ptp metric 1024")
		want.Interfaces[0].Addresses = want.Interfaces[0].Addresses[1:3]
		want.Interfaces[0].Addresses[1].Peer = "fd00::3"
		want.Routes = want.Routes[1:]
		g.apply(want)
		g.has("address fd00::1 peer fd00::3/128 dev ptp")
		g.hasNot("address 10.1.0.1 peer 10.1.0.2/32 dev ptp", "address fd00::1 peer fd00::2/128 dev ptp")
	})
}

// Several routes to one network with one metric are all kept.
func TestApplySameDestination(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		want.Routes, want.Neighbours = nil, nil
		for _, to := range []string{"10.50.0.0/16 10.88.0.7", "fd50::/64 fd00::7"} {
			destination, gateway, _ := strings.Cut(to, " ")
			want.Routes = append(want.Routes,
				&api.Route{Interface: "eth0", Destination: destination, Gateway: gateway},
				&api.Route{Interface: "eth0", Destination: destination, Gateway: gateway + "7"},
				&api.Route{Interface: "net1", Destination: destination, Gateway: gateway + "8", Onlink: true})
		}
		want.Routes[5].Gateway = "fd99::8"
		g.apply(want)
		g.has("route 10.50.0.0/16 via 10.88.0.7 dev eth0", "route 10.50.0.0/16 via 10.88.0.78 dev net1 onlink",
			"route fd50::/64 via fd00::7 dev eth0 metric 1024", "route fd50::/64 via fd00::77 dev eth0 metric 1024")
		want.Routes = slices.Delete(want.Routes, 1, 2)
		g.apply(want)
		g.has("route 10.50.0.0/16 via 10.88.0.7 dev eth0", "route 10.50.0.0/16 via 10.88.0.78 dev net1 onlink")
		g.hasNot("route 10.50.0.0/16 via 10.88.0.77 dev eth0")
	})
}

// A NIC may appear late, and disappear before the host says so.
func TestApplyHotPlug(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := twoNICs()
		first := &api.SetNetworkRequest{Interfaces: want.Interfaces[:1]}
		g.apply(first)
		g.plug(1)
		g.apply(want)
		must(t, netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "net1"}}))
		changes := g.apply(first)
		for _, change := range changes {
			if strings.Contains(change, "set down") {
				t.Errorf("%q of a NIC that is gone", change)
			}
		}
		if len(g.own.nics) != 1 || len(g.own.addresses) != 2 {
			t.Errorf("still remembered: %v, %v", g.own.nics, g.own.addresses)
		}
	})
}

func TestApplyErrors(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		with := func(change func(*api.SetNetworkRequest)) *api.SetNetworkRequest {
			want := twoNICs()
			want.Interfaces, want.Routes, want.Neighbours = want.Interfaces[:1], nil, nil
			change(want)
			return want
		}
		route := func(r *api.Route) *api.SetNetworkRequest {
			return with(func(w *api.SetNetworkRequest) { r.Interface = "eth0"; w.Routes = []*api.Route{r} })
		}
		g.refuse(route(&api.Route{Destination: "10.0.0.0/8", Gateway: "10.1.0.1"}),
			"add route 10.0.0.0/8 via 10.1.0.1 dev eth0", "network is unreachable", "check that the gateway is in a network of the interface")
		g.refuse(route(&api.Route{Destination: "fd77::/64", Gateway: "fd78::1"}), "add route fd77::/64 via fd78::1 dev eth0", "no route to host", "check that the gateway")
		g.refuse(route(&api.Route{Destination: "10.0.0.0/8", Source: "10.7.7.7"}), "src 10.7.7.7", "check that 10.7.7.7 is an address of the guest's", "Invalid prefsrc address")
		g.refuse(route(&api.Route{Destination: "10.0.0.0/8", Gateway: "10.88.255.255"}), "check that the gateway is another station's address on this interface")
		g.refuse(with(func(w *api.SetNetworkRequest) {
			w.Interfaces[0].Addresses, w.Interfaces[0].Mtu = w.Interfaces[0].Addresses[:1], 67
		}), "interface eth0: set MTU 67, it has 1400 and takes 68 to 65535")
		g.refuse(with(func(w *api.SetNetworkRequest) { w.Interfaces[0].Name = "peer1" }), "interface peer1: the name belongs to another interface")

		// After all of that, a valid request still works.
		g.apply(twoNICs())
	})
}

// A container's sysctl may disable IPv6: the rest of the network is as without
// it, and IPv6 comes when it is enabled.
func TestApplyWithoutIPv6(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		disable := func(value string) {
			t.Helper()
			must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte(value), 0o600))
		}
		disable("1")
		if changes := g.apply(twoNICs()); !slices.Contains(changes, "interface eth0: IPv6 is disabled, its IPv6 addresses and routes are left out") {
			t.Errorf("changes %q", changes)
		}
		g.has("address 10.88.0.2/16 dev eth0", "route 0.0.0.0/0 via 10.88.0.1 dev eth0", "neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0")
		six := []string{"address fd00::2/64 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024", "neighbour fe80::1 at " + macText(0x12) + " dev net1"}
		g.hasNot(six...)
		disable("0")
		g.apply(twoNICs())
		g.has(six...)
		disable("1") // the kernel removes them
		g.apply(twoNICs())
		g.hasNot(six[:2]...)
	})
}

// A request that is wrong, and one whose driver or NIC is missing, changes
// nothing.
func TestApplyChangesNothing(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		g.apply(twoNICs())
		before := g.all()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		late := twoNICs()
		late.Interfaces[1].PciPath, late.Interfaces[0].Addresses = "01/07", nil
		bad := twoNICs()
		bad.Interfaces[0].Addresses, bad.Routes[5].Gateway = nil, "x"
		if _, err := g.Apply(t.Context(), bad); !errdefs.IsInvalidArgument(err) {
			t.Error(err)
		}
		if _, err := g.Apply(ctx, late); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		broken := errors.New("no such module")
		g.loadDriver = func() error { return broken }
		if _, err := g.Apply(t.Context(), twoNICs()); !errors.Is(err, broken) {
			t.Error(err)
		}
		if diff := cmp.Diff(before, g.all()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestApplyIsSerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(nil)
		if !n.calls.TryLock() {
			t.Fatal("a call before the first")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := n.Apply(ctx, nil)
			done <- err
		}()
		synctest.Wait() // It waits for the call before it.
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestChangesAreBounded(t *testing.T) {
	c := changes{}
	for i := range maxChanges + 7 {
		c.addf("change %d", i)
	}
	words := c.words()
	if len(words) != maxChanges+1 || words[maxChanges] != "and 7 more" {
		t.Errorf("%d words, the last %q", len(words), words[len(words)-1])
	}
}

// Tables of the largest size are made and withdrawn.
func TestApplyMany(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{Interfaces: twoNICs().Interfaces[:1]}
		for i := range api.MaxRoutes {
			want.Routes = append(want.Routes, &api.Route{Interface: "eth0", Destination: fmt.Sprintf("100.%d.%d.0/24", 64+i/256, i%256), Scope: unix.RT_SCOPE_LINK})
		}
		for i := range 512 { // More would want net.ipv4.neigh.default.gc_thresh3 raised.
			want.Neighbours = append(want.Neighbours, &api.Neighbour{Interface: "eth0", Address: fmt.Sprintf("10.88.%d.%d", 1+i/256, i%256), Mac: mac(7)})
		}
		if changes := g.apply(want); len(changes) != maxChanges+1 {
			t.Errorf("%d changes", len(changes))
		}
		g.has("route 100.79.255.0/24 dev eth0", "neighbour 10.88.2.255 at "+macText(7)+" dev eth0")
		g.apply(&api.SetNetworkRequest{Interfaces: want.Interfaces})
		g.hasNot("route 100.79.255.0/24 dev eth0", "neighbour 10.88.2.255 at "+macText(7)+" dev eth0")
	})
}

// The kernel makes the route to an address's network unless the request forbids
// it; that can change.
func TestApplyWithoutPrefixRoute(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{Interfaces: []*api.Interface{{
			PciPath: twoNICs().Interfaces[0].PciPath, Name: "eth0", Mac: mac(1), Mtu: 1500,
			Addresses: []*api.Address{{Prefix: "10.88.0.2/16"}, {Prefix: "fd00::2/64"}},
		}}}
		for _, unrouted := range []bool{true, false, true} {
			for _, a := range want.Interfaces[0].Addresses {
				a.NoPrefixRoute = unrouted
			}
			g.apply(want)
			if again := g.apply(want); len(again) != 0 {
				t.Errorf("changed again: %v", again)
			}
			for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
				routes, err := netlink.RouteList(nil, family)
				must(t, err)
				connected := slices.ContainsFunc(routes, func(r netlink.Route) bool {
					return r.Dst.String() == "10.88.0.0/16" || r.Dst.String() == "fd00::/64"
				})
				if connected == unrouted {
					t.Errorf("noprefixroute %v: routes %v", unrouted, routes)
				}
			}
		}
	})
}

// A gateway that no network of the guest's covers is reached only with onlink.
func TestApplyUncoveredGateway(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{
			Interfaces: []*api.Interface{{PciPath: "01/00", Name: "eth0", Mac: []byte{2, 0, 0, 0, 0, 1}, Mtu: 1500, Addresses: []*api.Address{
				{Prefix: "10.1.0.2/24", NoPrefixRoute: true}, {Prefix: "fd01::2/64", NoPrefixRoute: true},
			}}},
		}
		for _, route := range []*api.Route{
			{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.1.0.1"}, {Interface: "eth0", Destination: "::/0", Gateway: "fd01::1", Metric: 1024},
		} {
			want.Routes = []*api.Route{route}
			if _, err := g.Apply(t.Context(), want); err == nil || !strings.Contains(err.Error(), "onlink") {
				t.Errorf("%v: %v", route, err)
			}
			route.Onlink = true
			for _, changes := range []bool{true, false} {
				if got, err := g.Apply(t.Context(), want); err != nil || len(got) > 0 != changes {
					t.Errorf("%v: %q, %v", route, got, err)
				}
			}
		}
	})
}

// A link follows the host's up and down, with its addresses and routes.
func TestApplyDown(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		for _, down := range []bool{true, false, true, false} {
			want := twoNICs()
			if want.Interfaces[1].Down = down; down {
				want.Interfaces[1].Addresses = want.Interfaces[1].Addresses[:1]
				want.Routes, want.Neighbours = want.Routes[:2], want.Neighbours[:1]
			}
			g.apply(want)
			g.has(fmt.Sprintf("link net1 mac %s mtu 1500 up %v arp true", macText(2), !down), "address 192.168.7.9/32 dev net1",
				"link eth0 mac "+macText(1)+" mtu 1400 up true arp true")
			if !down {
				g.has("address fd01::9/128 dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink")
			}
			if changes := g.apply(want); len(changes) > 0 {
				t.Errorf("the same again changed %q", changes)
			}
		}
	})
}
