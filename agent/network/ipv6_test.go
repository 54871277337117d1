package network

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// linkLocals returns the link-local addresses of a link, and all their flags.
func linkLocals(t *testing.T, name string) (all []string, flags int) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, err)
	list, err := netlink.AddrList(link, netlink.FAMILY_V6)
	must(t, err)
	for _, a := range list {
		if a.IP.IsLinkLocalUnicast() {
			all = append(all, a.IPNet.String())
			flags |= a.Flags
		}
	}
	return all, flags
}

// The host's link-local address is the NIC's only one, and is usable at once. It
// goes with the host's.
func TestApplyLinkLocal(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		want := twoNICs()
		const address = "fe80::7/64"
		want.Interfaces[0].Addresses = append(want.Interfaces[0].Addresses, &api.Address{Prefix: address})
		g.apply(want)
		if all, flags := linkLocals(t, "eth0"); !slices.Equal(all, []string{address}) || flags != unix.IFA_F_PERMANENT {
			t.Errorf("eth0 has %q with flags %#x; want only %s, permanent and not tentative", all, flags, address)
		}
		if all, _ := linkLocals(t, "net1"); len(all) != 1 || all[0] == address {
			t.Errorf("net1, for which the host names none, has %q: want the kernel's own", all)
		}
		g.has("route fe80::/64 dev eth0 metric 256")
		g.apply(twoNICs())
		if all, _ := linkLocals(t, "eth0"); len(all) != 0 {
			t.Errorf("the host's link has lost it, but eth0 has %q", all)
		}
	})
}

// A link without IPv6 on the host has none here, until it gets it there.
func TestApplySwitchesIPv6(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		want := &api.SetNetworkRequest{LoWithoutIpv6: true, Interfaces: []*api.Interface{
			{PciPath: "01/00", Name: "eth0", Mac: mac(1), WithoutIpv6: true, Addresses: []*api.Address{{Prefix: "10.88.0.2/16"}}},
		}}
		changes := g.apply(want)
		for _, name := range []string{"lo", "eth0"} {
			if !slices.Contains(changes, "interface "+name+": IPv6 switched off") {
				t.Errorf("changes %q", changes)
			}
		}
		g.has("address 10.88.0.2/16 dev eth0")
		if n := ipv6Addresses(t); len(n) != 0 {
			t.Errorf("there are IPv6 addresses: %q", n)
		}
		want.LoWithoutIpv6, want.Interfaces[0].WithoutIpv6 = false, false
		g.apply(want)
		if n := ipv6Addresses(t); len(n) != 2 {
			t.Errorf("IPv6 addresses %q, want one of lo and one of eth0", n)
		}
		// What a container has switched off is not the host's to switch on.
		must(t, os.WriteFile(disableIPv6("eth0"), []byte("1"), 0))
		g.apply(want)
		if off, err := ipv6Disabled("eth0"); err != nil || !off {
			t.Errorf("IPv6 of eth0 is switched on against the container's sysctl (%v)", err)
		}
	})
}

// A link whose MTU is too small for IPv6 has none on the host, and no setting for it
// in the guest. It gets both with a larger MTU.
func TestApplySmallMTU(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		nic := &api.Interface{PciPath: "01/00", Name: "eth0", Mac: mac(1), Mtu: 1000, WithoutIpv6: true}
		want := &api.SetNetworkRequest{Interfaces: []*api.Interface{nic}}
		g.apply(want)
		if _, err := os.Stat(disableIPv6("eth0")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("eth0 has IPv6: %v", err)
		}
		nic.Mtu, nic.WithoutIpv6, nic.Addresses = 1500, false, []*api.Address{{Prefix: "fe80::7/64"}}
		g.apply(want)
		g.has("address fe80::7/64 dev eth0")
		nic.Mtu, nic.WithoutIpv6, nic.Addresses = 1000, true, nil
		g.apply(want)
	})
}

// ipv6Addresses returns the lines of the namespace's IPv6 addresses.
func ipv6Addresses(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/if_inet6")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the kernel has no IPv6")
	}
	must(t, err)
	var all []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[5] == "lo" || fields[5] == "eth0" {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
