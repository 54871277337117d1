package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/pci"
)

// take moves NIC i out of the namespace, as a container would: its device stays.
func (g *guest) take(i int, name string) {
	g.t.Helper()
	must(g.t, netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	found, err := filepath.Glob(filepath.Join(g.slot(i), "virtio*", "net", "*"))
	if err != nil || len(found) != 1 {
		g.t.Fatal(found, err)
	}
	must(g.t, os.RemoveAll(found[0]))
}

// A NIC that a container has taken does not keep the others from following the host, and
// has its network again when it is back.
func TestTakenNIC(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		g.apply(want)
		g.take(1, "net1")
		want.Interfaces[0].Addresses = append(want.Interfaces[0].Addresses, &api.Address{Prefix: "10.55.0.1/24"})
		changes := g.apply(want)
		g.has("address 10.55.0.1/24 dev eth0", "route 0.0.0.0/0 via 10.88.0.1 dev eth0", "neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0")
		if !slices.ContainsFunc(changes, func(s string) bool { return strings.HasPrefix(s, "interface net1 is left out") }) {
			t.Errorf("nothing about net1 in %q", changes)
		}
		g.plug(1)
		g.apply(want)
		g.has("address fd01::9/128 dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink")
	})
}

// What a container has set of a NIC, and the routes that it has replaced, stay when
// something else changes; what the host changes then counts.
func TestApplyLeavesContainersRoutes(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := oneNIC()
		g.apply(want)
		link, err := netlink.LinkByName("eth0")
		must(t, err)
		g.vpn()
		must(t, netlink.LinkSetMTU(link, 1300))

		want.Neighbours = append(want.Neighbours, &api.Neighbour{Interface: "eth0", Address: "10.88.0.77", Mac: mac(0x77)})
		g.apply(want)
		g.has("neighbour 10.88.0.77 at "+macText(0x77)+" dev eth0", "route 0.0.0.0/0 dev tun0", "link eth0 mac "+macText(1)+" mtu 1300 up true arp true")
		g.hasNot("route 0.0.0.0/0 via 10.88.0.1 dev eth0")

		want.Routes[0].Gateway, want.Interfaces[0].Mtu = "10.88.0.3", 1450
		g.apply(want)
		g.has("route 0.0.0.0/0 via 10.88.0.3 dev eth0", "link eth0 mac "+macText(1)+" mtu 1450 up true arp true")
	})
}

// Routes that a call lost before it failed come with the next.
func TestRoutesAfterAFailure(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := oneNIC()
		g.apply(want)
		want.Interfaces[0].Addresses[0] = &api.Address{Prefix: "10.88.0.5/16"}
		routes := want.Routes
		want.Routes = append([]*api.Route{{Interface: "eth0", Destination: "172.20.0.0/16", Gateway: "10.99.0.1"}}, routes...)
		if changes, err := g.Apply(t.Context(), want); err == nil {
			t.Fatalf("a gateway in no network went: %q", changes)
		}
		want.Routes = routes
		g.apply(want)
		g.has("route 0.0.0.0/0 via 10.88.0.1 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024")
	})
}

// replug puts another device into NIC i's slot, whose driver is late.
func (g *guest) replug(i int) {
	g.t.Helper()
	slot := g.slot(i)
	other := filepath.Join(g.t.TempDir(), "other")
	mkdir(g.t, filepath.Join(other, fmt.Sprintf("virtio%d", i)))
	must(g.t, os.Rename(slot, filepath.Join(g.t.TempDir(), "before")))
	must(g.t, os.Rename(other, slot))
}

// A NIC that the host has plugged anew at the same path is not a taken one: its driver may
// be late, also if a container had taken the one before it.
func TestReplacedNICIsAwaited(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		g.apply(want)
		g.take(1, "net1")
		g.apply(want)
		g.replug(1)
		ctx, cancel := context.WithTimeout(t.Context(), 3*pci.Poll)
		defer cancel()
		if changes, err := g.Apply(ctx, want); !errdefs.IsNotFound(err) {
			t.Fatalf("it is not waited for: %q, %v", changes, err)
		}
		g.plug(1)
		g.apply(want)
		g.has("address fd01::9/128 dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink")
	})
}
