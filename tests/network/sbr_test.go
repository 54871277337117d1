package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// foreign4 and foreign6 are a client's addresses in networks to which the pod has only
// its default routes.
var foreign4, foreign6 = netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:99::9")

// A pod with two interfaces, of which the second has CNI's plugin sbr: what comes to
// that one's addresses from foreign networks is answered through it, and not by the
// first one's default route, by which no answer arrives. What changes while the pod
// runs, changes in the guest.
func TestSourceBasedRouting(t *testing.T) {
	ctx, d := begin(t)
	ns, far := newNetns(t, d), newNetns(t, d)
	newBridge(t, d, 0).join(t, ns, "eth0")
	second := newCNI(t, d, object{"type": "host-device", "device": "kbsbr"}, object{"type": "sbr"})
	second.noRoutes()
	netns("").do(t, fmt.Sprintf("ip link add kbsbr type veth peer name far0 netns %s", far))
	far.do(t, fmt.Sprintf(`
		ip link set far0 up
		ip addr add %s/%d dev far0
		ip addr add %s/%d dev far0 nodad
		ip addr add %s/32 dev lo
		ip addr add %s/128 dev lo
		ip route replace %s dev far0 src %s
		ip -6 route replace %s dev far0 metric 256 src %s`,
		second.gateway4, second.net4.Bits(), second.gateway6, second.net6.Bits(), foreign4, foreign6,
		second.net4, foreign4, second.net6, foreign6))
	net1 := second.join(t, ns, "net1")
	if rules := must(t, func() (string, error) { return ns.run("sh", "-c", "ip rule; ip -6 rule") }); !containsAll(rules, net1.addr4, net1.addr6) {
		t.Fatalf("the plugin has made no rules: %s", rules)
	}
	// Not UDP: an answer of a server that listens on every address has the address of
	// the first interface, also with runc.
	fromAfar := []string{fmt.Sprintf("tcp://%s?bytes=1048576", netip.AddrPortFrom(net1.addr4, port)), fmt.Sprintf("tcp://%s?bytes=1048576", netip.AddrPortFrom(net1.addr6, port))}
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	far.checks(t, fromAfar...)

	ns.do(t, fmt.Sprintf(`
		ip rule add from %s to 203.0.113.0/24 prohibit priority 7
		ip -6 rule add from %s lookup 1000 priority 8
		ip -6 route add default via %s dev net1 onlink table 1000`, net1.addr4, net1.addr6, second.gateway6))
	p.sameState(ctx, t, ns)
	far.checks(t, fromAfar...)
	ns.do(t, fmt.Sprintf(`
		ip rule del priority 7
		ip -6 rule del priority 8
		ip -6 route del default via %s dev net1 table 1000`, second.gateway6))
	p.sameState(ctx, t, ns)
}

func containsAll(text string, addrs ...netip.Addr) bool {
	for _, a := range addrs {
		if !strings.Contains(text, "from "+a.String()) {
			return false
		}
	}
	return true
}
