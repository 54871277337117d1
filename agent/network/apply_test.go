package network

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApply(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 2)
		changes := g.apply(twoNICs())
		t.Log(changes)
		g.has(
			"link eth0 mac "+macText(1)+" mtu 1400 up true arp true",
			"link net1 mac "+macText(2)+" mtu 1500 up true arp true",
			"address 10.88.0.2/16 dev eth0", "address fd00::2/64 dev eth0",
			"address 192.168.7.9/32 dev net1", "address fd01::9/128 dev net1",
			"route 0.0.0.0/0 via 10.88.0.1 dev eth0", "route ::/0 via fd00::1 dev eth0 metric 1024",
			"route 172.16.0.0/12 via 192.168.7.1 dev net1 src 192.168.7.9 metric 7 mtu 1300",
			"route 192.168.7.1/32 dev net1", "route 10.200.0.0/16 via 172.31.0.1 dev net1 onlink",
			"route fd02::/48 via fe80::1 dev net1 src fd01::9 metric 3 mtu 1280",
			"neighbour 10.88.0.1 at "+macText(0x11)+" dev eth0", "neighbour fe80::1 at "+macText(0x12)+" dev net1",
		)
		text, err := os.ReadFile(g.resolvConf)
		must(t, err)
		want := "nameserver 10.96.0.10\nnameserver fd00::a\nsearch default.svc svc\noptions ndots:5\n"
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Error(diff)
		}
		if !slices.Contains(changes, "interface eth1 renamed to net1") || !slices.Contains(changes, "resolv.conf written") {
			t.Errorf("changes %q", changes)
		}
	})
}
