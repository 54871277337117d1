package network

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
)

// The guest gets the settings of a link that differ from the kernel's, as CNI's plugin
// tuning sets them, whatever is usual in the namespace: that comes from the host.
func TestStateOfSettings(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.veth(t, "eth1", "10.2.0.2/24")
	set := func(file, value string) {
		t.Helper()
		must(t, p.ns.do(func() error { return os.WriteFile(filepath.Join("/proc/sys/net", file), []byte(value), 0) }))
	}
	both := []*api.Setting{{Name: "ipv4/forwarding", Value: 1}, {Name: "ipv6/hop_limit", Value: 9}}
	n, vm := p.open(t, Options{}), newMachine(t)
	for _, step := range []struct {
		file, value string
		want        []*api.Setting
	}{
		{"ipv4/conf/eth1/arp_ignore", "1", []*api.Setting{{Name: "ipv4/arp_ignore", Value: 1}}},
		{"ipv6/conf/eth1/hop_limit", "9", []*api.Setting{{Name: "ipv4/arp_ignore", Value: 1}, {Name: "ipv6/hop_limit", Value: 9}}},
		{"ipv4/conf/eth1/tag", "7", []*api.Setting{{Name: "ipv4/arp_ignore", Value: 1}, {Name: "ipv6/hop_limit", Value: 9}}},
		{"ipv4/conf/eth1/arp_ignore", "0", []*api.Setting{{Name: "ipv6/hop_limit", Value: 9}}},
		{"ipv4/conf/eth1/forwarding", "1", both},
		{"ipv4/conf/default/forwarding", "1", both},
		{"ipv4/conf/default/accept_redirects", "0", both},
		{"ipv4/conf/eth1/accept_redirects", "0", append([]*api.Setting{{Name: "ipv4/accept_redirects"}}, both...)},
	} {
		set(step.file, step.value)
		must(t, n.Plug(t.Context(), vm))
		state := n.State().GetInterfaces()
		if diff := cmp.Diff(step.want, state[1].GetSettings(), protocmp.Transform()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.file, step.value, diff)
		}
		if len(state[0].GetSettings()) > 0 {
			t.Errorf("settings of another link: %v", state[0].GetSettings())
		}
	}
}

// A link of a namespace with the kernel's values has no setting that the guest gets.
func TestUsualSettings(t *testing.T) {
	t.Parallel()
	ns, _ := newNamespace(t)
	must(t, ns.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", TxQLen: -1}}))
	must(t, ns.do(func() error {
		v := &view{links: []link{{name: "br0"}}}
		err := v.readSettings()
		for _, s := range v.links[0].settings {
			t.Errorf("%s is %d", s.GetName(), s.GetValue())
		}
		return err
	}))
}
