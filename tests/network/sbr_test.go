package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// foreign4 and foreign6 are a client's addresses in networks to which the pod has only
// its default routes.
var foreign4, foreign6 = netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:99::9")

// A pod with two interfaces, of which the second has CNI's plugin sbr: what comes to
// that one's addresses from foreign networks is answered through it, and not by the
// first one's default route, by which no answer arrives. What changes while the pod
// runs, changes in the guest.
func TestSourceBasedRouting(t *testing.T) {
	for _, test := range []struct {
		name    string
		arrange func(*testing.T, *harness.Daemon)
	}{
		{"usual", func(*testing.T, *harness.Daemon) {}},
		{"macvtap", func(t *testing.T, d *harness.Daemon) {
			t.Helper()
			needVM(t)
			configure(t, d, macvtap)
		}},
		{"template", func(t *testing.T, d *harness.Daemon) {
			t.Helper()
			needVM(t)
			useTemplate(t, d, "")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			test.arrange(t, d)
			routeBySource(ctx, t, d)
		})
	}
}

func routeBySource(ctx context.Context, t *testing.T, d *harness.Daemon) {
	t.Helper()
	ns, far := newNetns(t, d), newNetns(t, d)
	newBridge(t, d, 0).join(t, ns, "eth0")
	net1 := joinBySource(t, d, ns, far)
	before := settled(ctx, t, ns)
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	// Not UDP: an answer of a server that listens on every address has the address of
	// the first interface, also with runc.
	var fromAfar []string
	for _, a := range net1.addrs() {
		fromAfar = append(fromAfar, fmt.Sprintf("tcp://%s?bytes=1048576", netip.AddrPortFrom(a, port)))
	}
	far.checks(t, fromAfar...)

	ns.do(t, fmt.Sprintf(`
		ip rule add from %s to 203.0.113.0/24 prohibit priority 7
		ip -6 rule add from %s lookup 1000 priority 8
		ip -6 route add default via %s dev net1 onlink table 1000`, net1.addr4, net1.addr6, net1.network.gateway6))
	p.sameState(ctx, t, ns)
	far.checks(t, fromAfar...)
	ns.do(t, fmt.Sprintf(`
		ip rule del priority 7
		ip -6 rule del priority 8
		ip -6 route del default via %s dev net1 table 1000`, net1.network.gateway6))
	p.sameState(ctx, t, ns)
	removed(t, "pod", p.Remove)
	eventually(ctx, t, "the namespace after the pod", before, ns.all)
}

// joinBySource gives a namespace the interface net1, which leads to far, and has the
// plugin sbr make its rules. What far sends comes from the foreign addresses.
func joinBySource(t *testing.T, d *harness.Daemon, ns, far netns) *lease {
	t.Helper()
	n := newCNI(t, d, object{"type": "host-device", "device": "kbsbr"}, object{"type": "sbr"})
	n.noRoutes()
	netns("").do(t, fmt.Sprintf("ip link add kbsbr type veth peer name far0 netns %s", far))
	far.do(t, fmt.Sprintf(`
		ip link set far0 up
		ip addr add %s/%d dev far0
		ip addr add %s/%d dev far0 nodad
		ip addr add %s/32 dev lo
		ip addr add %s/128 dev lo nodad
		ip route replace %s dev far0 src %s
		ip -6 route replace %s dev far0 metric 256 src %s`,
		n.gateway4, n.net4.Bits(), n.gateway6, n.net6.Bits(), foreign4, foreign6, n.net4, foreign4, n.net6, foreign6))
	net1 := n.join(t, ns, "net1")
	rules := must(t, func() (string, error) { return ns.run("sh", "-c", "ip rule; ip -6 rule") })
	for _, a := range net1.addrs() {
		if !strings.Contains(rules, "from "+a.String()) {
			t.Fatalf("the plugin has made no rule for %s: %s", a, rules)
		}
	}
	return net1
}
