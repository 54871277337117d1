package network

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// Containers see what changes in their pod's namespace while it runs: links
// that are added and removed, their addresses, routes and MTU. Docker makes no
// namespace; it puts links into that of the task's process.
func TestNamespaceChangesWhilePodRuns(t *testing.T) {
	for _, test := range []struct {
		name string
		ns   func(*testing.T, *harness.Daemon) netns
	}{
		{"namespace of the engine", newNetns},
		{"namespace of the task", func(*testing.T, *harness.Daemon) netns { return "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			first, second := newBridge(t, d, 0), newBridge(t, d, 1400)
			second.noRoutes()
			ns := test.ns(t, d)
			p := newPod(ctx, t, d, ns)
			if ns == "" {
				ns = netns(fmt.Sprintf("/proc/%d/ns/net", p.Sandbox.Task.Pid()))
				ns.do(t, "ip link set lo up")
			}
			p.sameState(ctx, t, ns)
			netns("").serve(ctx, t, servers...)

			eth0 := first.join(t, ns, "eth0")
			p.sameState(ctx, t, ns)
			netns("").checks(t, targets(1500, eth0.addrs()...)...)

			net1 := second.join(t, ns, "net1")
			p.sameState(ctx, t, ns)
			netns("").checks(t, targets(1400, net1.addrs()...)...)

			ns.do(t, fmt.Sprintf(`
				ip addr add 10.91.0.1/24 dev eth0
				ip addr add fd91::1/64 dev eth0
				ip route add 10.92.0.0/16 via %s dev eth0 metric 9
				ip link set eth0 mtu 1350
				ip neigh add 10.91.0.9 lladdr 02:00:00:00:91:09 dev eth0 nud permanent`, first.gateway4))
			p.sameState(ctx, t, ns)
			p.checks(ctx, t, targets(1350, first.gateways()...)...)

			ns.do(t, `
				ip addr del 10.91.0.1/24 dev eth0
				ip addr del fd91::1/64 dev eth0
				ip route del 10.92.0.0/16
				ip neigh del 10.91.0.9 dev eth0`)
			p.sameState(ctx, t, ns)

			if err := eth0.del(); err != nil {
				t.Fatal(err)
			}
			p.sameState(ctx, t, ns)
			netns("").checks(t, targets(1400, net1.addrs()...)...)
		})
	}
}

// A single container that asks for the host's network has loopback, and what is
// later put into its task's namespace.
func TestSingleContainerOnTheHostNetwork(t *testing.T) {
	needVM(t)
	ctx, d := begin(t)
	mark := d.LogSize()
	cfg := probeConfig(servers...)
	cfg.Spec = append(cfg.Spec, oci.WithHostNamespace(specs.NetworkNamespace))
	c, err := d.Create(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", c.Remove) })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	awaitReady(ctx, t, c.Out, c.Err)
	p := &pod{Pod: &harness.Pod{Sandbox: c}, box: c}
	if out, err := p.run(ctx, "/bin/sh", "-c", "cat /proc/net/dev"); err != nil || !strings.Contains(out, "lo:") || strings.Count(out, ":") != 1 {
		t.Errorf("links of the container: %v\n%s", err, out)
	}
	if !strings.Contains(d.LogSince(mark, 1000), "asks for the host's network") {
		t.Error("there is no warning")
	}
	ns := netns(fmt.Sprintf("/proc/%d/ns/net", c.Task.Pid()))
	ns.do(t, "ip link set lo up")
	l := newBridge(t, d, 0).join(t, ns, "eth0")
	p.sameState(ctx, t, ns)
	netns("").checks(t, targets(1500, l.addrs()...)...)
}

// A link may change its MAC and its name, and lose what the kernel removes when
// a link goes down; the pod's card follows.
func TestLinkChangesItsIdentity(t *testing.T) {
	ctx, d := begin(t)
	bridge := newBridge(t, d, 0)
	ns := newNetns(t, d)
	l := bridge.join(t, ns, "eth0")
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	ns.do(t, "ip link set eth0 down")
	p.sameState(ctx, t, ns)
	ns.do(t, fmt.Sprintf(`
		ip link set eth0 name lan0
		ip link set lan0 address 02:00:00:00:91:01
		ip link set lan0 up
		ip addr add %s/64 dev lan0 nodad
		ip route add default via %s`, l.addr6, bridge.gateway4))
	p.sameState(ctx, t, ns)
	netns("").do(t, "ip neigh flush all") // the host knows the old MAC
	netns("").checks(t, targets(1500, l.addrs()...)...)
}

// A pod starts with routes whose gateway no network covers any more: the
// namespace's kernel has checked it before.
func TestGatewayThatIsNotCovered(t *testing.T) {
	ctx, d := begin(t)
	bridge := newBridge(t, d, 0)
	ns := newNetns(t, d)
	l := bridge.join(t, ns, "eth0")
	ns.do(t, `
		ip addr add 10.81.0.2/24 dev eth0
		ip route add 10.82.0.0/16 via 10.81.0.1 dev eth0
		ip addr del 10.81.0.2/24 dev eth0
		ip route | grep -q '^10.82.0.0/16 via 10.81.0.1'`)
	ns.do(t, "ip route del $(ip route show dev eth0 scope link | cut -d' ' -f1) dev eth0")
	newPod(ctx, t, d, ns)
	netns("").checks(t, targets(1500, l.addrs()...)...)
}
