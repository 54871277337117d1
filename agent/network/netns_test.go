package network

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// inNamespace runs f in its own network namespace. The thread ends with
// f's goroutine, and the namespace with it, so f must not leave it.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	done := make(chan struct{})
	go func() {
		defer close(done) // Also after a Fatal.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f(t)
	}()
	<-done
}

// guest is a namespace whose NICs are veths, with a fake PCI tree that leads to
// them.
type guest struct {
	*Network
	t *testing.T
}

// newGuest makes NICs eth0, eth1, ...: NIC i is in slot i of the bus behind
// slot 1, so its path is "01/0i". Their other ends are peer0, peer1, ...
func newGuest(t *testing.T, nics int) *guest {
	t.Helper()
	dir := t.TempDir()
	g := &guest{Network: New(nil), t: t}
	g.pci, g.resolvConf = filepath.Join(dir, "pci"), filepath.Join(dir, "resolv.conf")
	// Other entries in such a directory.
	for _, other := range []string{"pci_bus/0000:00", "0000:00:01.0/0000:00:01.0:pcie001", "power"} {
		mkdir(t, filepath.Join(g.pci, other))
	}
	must(t, LoopbackUp())
	for i := range nics {
		g.plug(i)
	}
	return g
}

// plug makes NIC i.
func (g *guest) plug(i int) {
	g.t.Helper()
	name := fmt.Sprintf("eth%d", i)
	must(g.t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: 1000}, PeerName: fmt.Sprintf("peer%d", i),
	}))
	link, err := netlink.LinkByName(name)
	must(g.t, err)
	peer, err := netlink.LinkByName(fmt.Sprintf("peer%d", i))
	must(g.t, err)
	// The kernel would give it an address at some moment of the test.
	must(g.t, netlink.LinkSetIP6AddrGenMode(peer, nl.IN6_ADDR_GEN_MODE_NONE))
	must(g.t, netlink.LinkSetUp(peer))
	g.show(i, link.Attrs().Index)
}

// slot returns the directory of NIC i's device.
func (g *guest) slot(i int) string {
	return filepath.Join(g.pci, "0000:00:01.0", fmt.Sprintf("0000:07:%02x.0", i))
}

// show adds NIC i to the PCI tree.
func (g *guest) show(i, index int) {
	g.t.Helper()
	dir := filepath.Join(g.slot(i), fmt.Sprintf("virtio%d", i), "net", fmt.Sprintf("eth%d", i))
	mkdir(g.t, dir)
	must(g.t, os.WriteFile(filepath.Join(dir, "ifindex"), []byte(fmt.Sprintln(index)), 0o600))
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply applies want and then once more, which must change nothing.
func (g *guest) apply(want *api.SetNetworkRequest) []string {
	g.t.Helper()
	changes, err := g.Apply(g.t.Context(), want)
	if err != nil {
		g.t.Fatalf("%v, after %q", err, changes)
	}
	if again, err := g.Apply(g.t.Context(), want); err != nil || len(again) != 0 {
		g.t.Errorf("the second time: %q, %v", again, err)
	}
	return changes
}

// refuse applies want, which must fail with an error that contains words.
func (g *guest) refuse(want *api.SetNetworkRequest, words ...string) {
	g.t.Helper()
	changes, err := g.Apply(g.t.Context(), want)
	if err == nil {
		g.t.Fatalf("want %q, but it went: %q", words, changes)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			g.t.Errorf("error %q has no %q", err, word)
		}
	}
}

// has checks that the kernel has each of want: addresses, routes, permanent
// neighbours and links, in this package's text form.
func (g *guest) has(want ...string) {
	g.t.Helper()
	all := g.all()
	for _, w := range want {
		if !slices.Contains(all, w) {
			g.t.Errorf("no %q in\n%s", w, strings.Join(all, "\n"))
		}
	}
}

func (g *guest) hasNot(unwanted ...string) {
	g.t.Helper()
	all := g.all()
	for _, w := range unwanted {
		if slices.Contains(all, w) {
			g.t.Errorf("%q is there", w)
		}
	}
}

// all lists what the namespace has.
func (g *guest) all() []string {
	g.t.Helper()
	links, err := netlink.LinkList()
	must(g.t, err)
	var list []string
	names := map[int]string{}
	for _, link := range links {
		at := link.Attrs()
		names[at.Index] = at.Name
		list = append(list, fmt.Sprintf("link %s mac %s mtu %d up %v arp %v", at.Name, at.HardwareAddr, at.MTU,
			at.Flags&net.FlagUp != 0, at.RawFlags&unix.IFF_NOARP == 0))
		addresses, err := addressesOf(at.Index)
		must(g.t, err)
		for _, a := range addresses {
			list = append(list, fmt.Sprintf("address %s dev %s", a, at.Name))
		}
	}
	all, err := routes()
	must(g.t, err)
	for r := range all {
		list = append(list, r.text(names[r.index]))
	}
	policy, err := rules()
	must(g.t, err)
	for _, r := range policy {
		list = append(list, r.String())
	}
	permanent, err := permanentNeighbours()
	must(g.t, err)
	for n := range permanent {
		list = append(list, n.text(names[n.index]))
	}
	slices.Sort(list)
	return list
}

func mac(last byte) []byte { return []byte{0x02, 0, 0, 0, 0, last} }

func macText(last byte) string { return net.HardwareAddr(mac(last)).String() }

// twoNICs returns a pod's request with two networks of both families.
func twoNICs() *api.SetNetworkRequest {
	return &api.SetNetworkRequest{
		Dns: &api.DNS{Servers: []string{"10.96.0.10", "fd00::a"}, Searches: []string{"default.svc", "svc"}, Options: []string{"ndots:5"}},
		Interfaces: []*api.Interface{
			{PciPath: "01/00", Name: "eth0", Mac: mac(1), Mtu: 1400, Addresses: []*api.Address{{Prefix: "10.88.0.2/16"}, {Prefix: "fd00::2/64"}}},
			{PciPath: "01/01", Name: "net1", Mac: mac(2), Mtu: 1500, Addresses: []*api.Address{{Prefix: "192.168.7.9/32"}, {Prefix: "fd01::9/128"}}},
		},
		Routes: []*api.Route{
			{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.88.0.1"},
			{Interface: "eth0", Destination: "::/0", Gateway: "fd00::1"},
			{Interface: "net1", Destination: "172.16.0.0/12", Gateway: "192.168.7.1", Source: "192.168.7.9", Metric: 7, Mtu: 1300, AdvMss: 1200},
			{Interface: "net1", Destination: "192.168.7.1/32", Scope: unix.RT_SCOPE_LINK},
			{Interface: "net1", Destination: "10.200.0.0/16", Gateway: "172.31.0.1", Onlink: true},
			{Interface: "net1", Destination: "fd02::/48", Gateway: "fe80::1", Metric: 3, Mtu: 1280, AdvMss: 1220, Source: "fd01::9"},
		},
		Neighbours: []*api.Neighbour{
			{Interface: "eth0", Address: "10.88.0.1", Mac: mac(0x11)},
			{Interface: "net1", Address: "fe80::1", Mac: mac(0x12)},
			{Interface: "eth0", Address: "10.88.0.9", Mac: []byte{3, 0, 0, 0, 0, 9}},
		},
	}
}

// oneNIC returns the request of the first of twoNICs' networks alone.
func oneNIC() *api.SetNetworkRequest {
	want := twoNICs()
	want.Interfaces, want.Routes, want.Neighbours = want.Interfaces[:1], want.Routes[:2], want.Neighbours[:1]
	return want
}
