package network

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The errors say which kind of link to use instead, also on a kernel without these kinds.
func TestKindsOfWhichTheErrorNamesAnother(t *testing.T) {
	t.Parallel()
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for name, test := range map[string]struct {
		l     link
		model Model
		want  string
	}{
		"ipvlan in mode l3s":               {link{kind: "ipvlan", mac: mac, mtu: 1500, l3s: true}, TCFilter, "use mode l2 or l3"},
		"ipvlan":                           {link{kind: "ipvlan", mac: mac, mtu: 1500}, TCFilter, ""},
		"macvtap on an ipvlan":             {link{kind: "ipvlan", mac: mac, mtu: 1500}, Macvtap, "model macvtap is not for links of this kind: use tcfilter"},
		"no packets from ipvlan in l3s":    {link{kind: "ipvlan", mac: mac, mtu: 1500, l3s: true}, None, ""},
		"netkit in mode l3":                {link{kind: "netkit", mac: make([]byte, 6), mtu: 1500}, TCFilter, "use a netkit in mode l2"},
		"netkit in mode l2":                {link{kind: "netkit", mac: mac, mtu: 1500}, TCFilter, ""},
		"another link that has only zeros": {link{kind: "veth", mac: make([]byte, 6), mtu: 1500}, TCFilter, "a MAC of six bytes"},
	} {
		ns, path := newNamespace(t)
		must(t, ns.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1}}))
		test.l.index = linkOf(t, ns, "br0").Attrs().Index
		n := (&pod{ns: ns, path: path}).open(t, Options{Model: test.model})
		err := test.l.check("ether")
		if err == nil {
			_, err = n.planLink(test.l)
		}
		if test.want == "" && err != nil || test.want != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// Of an ipvlan's modes only l3s is refused.
func TestModesOfIPvlan(t *testing.T) {
	t.Parallel()
	for mode, name := range map[netlink.IPVlanMode]string{netlink.IPVLAN_MODE_L2: "l2", netlink.IPVLAN_MODE_L3: "l3", netlink.IPVLAN_MODE_L3S: "l3s"} {
		p := newPod(t)
		must(t, p.ns.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "lower", TxQLen: -1}}))
		err := p.ns.LinkAdd(&netlink.IPVlan{
			LinkAttrs: netlink.LinkAttrs{Name: "iv0", ParentIndex: linkOf(t, p.ns, "lower").Attrs().Index, TxQLen: -1}, Mode: mode,
		})
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skipf("this kernel has no ipvlan links in mode %s", name)
		}
		must(t, err)
		p.address(t, "iv0", "10.4.0.2/24")
		n, vm := p.open(t, Options{}), newMachine(t)
		want := []string{"eth0", "iv0"}
		if mode == netlink.IPVLAN_MODE_L3S {
			want = want[:1]
		}
		if err := n.Plug(t.Context(), vm); (err != nil) != (len(want) == 1) || err != nil && !strings.Contains(err.Error(), "link iv0 (ipvlan): an ipvlan in mode l3s") {
			t.Errorf("mode %s: %v", name, err)
		}
		if got := interfaces(n); !cmp.Equal(got, want) {
			t.Errorf("mode %s: the guest has %v", name, got)
		}
	}
}
