package network

import (
	"fmt"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// A pod with a second network reaches both.
func TestTwoInterfaces(t *testing.T) {
	ctx, d := begin(t)
	first, second := newBridge(t, d, 0), newBridge(t, d, 1400)
	second.noRoutes()
	ns := newNetns(t, d)
	eth0, net1 := first.join(t, ns, "eth0"), second.join(t, ns, "net1")
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	netns("").checks(t, append(targets(1500, eth0.addrs()...), targets(1400, net1.addrs()...)...)...)
	netns("").serve(ctx, t, servers...)
	p.checks(ctx, t, append(targets(1500, first.gateways()...), targets(1400, second.gateways()...)...)...)
}

// The plugin ptp has no bridge: the host routes between the pods, and a pod's
// link has no network, only its gateway.
func TestPointToPoint(t *testing.T) {
	ctx, d := begin(t)
	n := newCNI(t, d, object{"type": "ptp"})
	ns, otherNS := newNetns(t, d), newNetns(t, d)
	l, other := n.join(t, ns, "eth0"), n.join(t, otherNS, "eth0")
	otherNS.serve(ctx, t, servers...)
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	netns("").checks(t, targets(1500, l.addrs()...)...)
	otherNS.checks(t, targets(1500, l.addrs()...)...)
	netns("").serve(ctx, t, servers...)
	p.checks(ctx, t, targets(1500, append(n.gateways(), other.addrs()...)...)...)
}

// A pod whose namespace has nothing but lo, and one for which the engine made
// no namespace, have a loopback and nothing else.
func TestNoInterface(t *testing.T) {
	for _, test := range []struct {
		name string
		ns   func(*testing.T, *harness.Daemon) netns
	}{
		{"only lo", newNetns},
		{"no path", func(*testing.T, *harness.Daemon) netns { return "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !bed.runtime.VM && test.name == "no path" {
				t.Skip("runc leaves lo down in a namespace that it makes")
			}
			ctx, d := begin(t)
			p := newPod(ctx, t, d, test.ns(t, d))
			const want = "addr lo 127.0.0.1/8\naddr lo ::1/128\n" + // and the rules with which a namespace begins
				"rule 0 table 255\nrule 0 v6 table 255\nrule 32766 table 254\nrule 32766 v6 table 254\nrule 32767 table 253\n"
			if got := must(t, p.state(ctx)); got != want {
				t.Errorf("the container's network is\n%s, want\n%s", got, want)
			}
			p.checks(ctx, t, fmt.Sprintf("tcp://127.0.0.1:%d?bytes=100", port), fmt.Sprintf("tcp://[::1]:%d?bytes=100", port))
		})
	}
}

// Links on top of one of the host's links: the pod and what is at the other end
// of the host's link reach each other.
func TestLinksOnALink(t *testing.T) {
	for _, test := range []struct {
		kind   string
		plugin object
		// far is the link at the other end that has the gateway's addresses.
		far string
	}{
		{"macvlan", object{"type": "macvlan", "mode": "bridge"}, "far"},
		{"ipvlan", object{"type": "ipvlan"}, "far"},
		{"vlan", object{"type": "vlan", "vlanId": 5}, "far.5"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			ctx, d := begin(t)
			lan := newNetns(t, d)
			netns("").do(t, fmt.Sprintf("ip link add kbup type veth peer name far netns %s; ip link set kbup up", lan))
			lan.do(t, "ip link set far up")
			t.Cleanup(func() { netns("").do(t, "ip link del kbup") })
			needKind(t, lan, test.kind)
			if test.kind == "vlan" {
				lan.do(t, "ip link add link far name far.5 type vlan id 5; ip link set far.5 up")
			}
			test.plugin["master"] = "kbup"
			n := newCNI(t, d, test.plugin)
			lan.do(t, fmt.Sprintf("ip addr add %s/24 dev %s; ip addr add %s/64 dev %[2]s nodad", n.gateway4, test.far, n.gateway6))
			lan.serve(ctx, t, servers...)

			ns := newNetns(t, d)
			l := n.join(t, ns, "eth0")
			p := newPod(ctx, t, d, ns)
			p.sameState(ctx, t, ns)
			p.checks(ctx, t, targets(1500, n.gateways()...)...)
			lan.checks(t, targets(1500, l.addrs()...)...)
		})
	}
}

// needKind skips the test if the host's kernel has no such links.
func needKind(t *testing.T, ns netns, kind string) {
	t.Helper()
	more := ""
	if kind == "vlan" {
		more = "id 9"
	}
	_, err := ns.run("sh", "-ec", fmt.Sprintf("ip link add link far name kbtry type %s %s; ip link del kbtry", kind, more))
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "Unknown device type"):
		t.Skipf("the host's kernel has no %s links: %v", kind, err)
	default:
		t.Fatal(err)
	}
}

// The ways to connect a namespace's links with the VM, and a card with several
// queues.
func TestModels(t *testing.T) {
	needVM(t)
	for _, test := range []struct {
		name, config string
		queues       int
		// joined does what is left to the operator.
		joined func(*testing.T, netns)
	}{
		{name: "two queues", config: "[hypervisor.qemu]\ndefault_vcpus = 2\n", queues: 2},
		{name: "macvtap", config: macvtap, queues: 1},
		{name: "none", config: "[runtime]\ninternetworking_model = \"none\"\n", queues: 1, joined: joinByHand},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, test.config)
			bridge := newBridge(t, d, 0)
			ns := newNetns(t, d)
			l := bridge.join(t, ns, "eth0")
			before := settled(ctx, t, ns)
			bare := barePod(ctx, t, d, ns)
			if test.joined != nil {
				test.joined(t, ns)
				before = ""
			}
			p := serving(ctx, t, bare, servers...)
			netns("").checks(t, targets(1500, l.addrs()...)...)
			netns("").serve(ctx, t, servers...)
			p.checks(ctx, t, targets(1500, bridge.gateways()...)...)

			out, err := p.run(ctx, "sh", "-c", "ls -d /sys/class/net/eth0/queues/rx-*")
			if got := strings.Count(out, "rx-"); err != nil || got != test.queues {
				t.Errorf("eth0 has the receive queues %q, want %d, error %v", out, test.queues, err)
			}
			removed(t, "pod", p.Remove)
			if before != "" {
				eventually(ctx, t, "the namespace after the pod", before, ns.all)
			}
		})
	}
}

// joinByHand redirects between eth0 and the tap that the model "none" makes.
func joinByHand(t *testing.T, ns netns) {
	t.Helper()
	ns.do(t, `
		tap=$(ip -o link | cut -d: -f2 | tr -d ' ' | grep '^tap.*_kata$')
		for way in "eth0 $tap" "$tap eth0"; do
			set -- $way
			tc qdisc add dev $1 ingress
			tc filter add dev $1 parent ffff: protocol all u32 match u8 0 0 action mirred egress redirect dev $2
		done`)
}
