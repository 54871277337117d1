package containerd

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// hostTools gives a container the host's programs and their libraries, beside
// busybox in /bin and /sbin: Debian keeps all its own below /usr.
var hostTools = oci.WithMounts([]specs.Mount{
	{Type: "bind", Source: "/usr", Destination: "/usr", Options: []string{"rbind", "ro"}},
	{Type: "bind", Source: "/usr/lib", Destination: "/lib", Options: []string{"rbind", "ro"}},
	{Type: "bind", Source: "/usr/lib64", Destination: "/lib64", Options: []string{"rbind", "ro"}},
	{Type: "tmpfs", Source: "tmpfs", Destination: "/run", Options: []string{"nosuid"}},
})

// networkAdmin starts a container that may change the pod's network.
func networkAdmin(ctx context.Context, t *testing.T, pod *harness.Pod, more ...string) *harness.Container {
	t.Helper()
	caps := append([]string{"CAP_NET_ADMIN", "CAP_NET_RAW"}, more...)
	return add(ctx, t, pod, harness.ContainerConfig{
		Name: "admin", Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{oci.WithAddedCapabilities(caps), hostTools},
	})
}

// try runs a script in the container and returns its exit code and output.
func try(ctx context.Context, t *testing.T, c *harness.Container, text string) (uint32, string) {
	t.Helper()
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script(text)})
	if err != nil {
		t.Fatalf("exec %q: %v", text, err)
	}
	return code, p.Out.String() + p.Err.String()
}

// works runs a script that must succeed.
func works(ctx context.Context, t *testing.T, c *harness.Container, text string) string {
	t.Helper()
	code, said := try(ctx, t, c, text)
	if code != 0 {
		t.Errorf("%s: exit code %d: %s", text, code, said)
	}
	return said
}

// loaded returns the names of the guest's modules.
func loaded(ctx context.Context, t *testing.T, c *harness.Container) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for line := range strings.Lines(works(ctx, t, c, "cat /proc/modules")) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	return names
}

// links are a link of each kind that needs a module.
const links = `set -e
ip link add br0 type bridge
ip link add va type veth peer name vb
ip link set va master br0
ip link add link va name vlan type vlan id 7
ip link add link vb name mac type macvlan
ip link add vx type vxlan id 9 dstport 4789 dev vb
ip link add dum type dummy
ip link add wg type wireguard
ip link add red type vrf table 9
`

// firstNames are links with the names that their modules use when they are loaded
// without parameters.
const firstNames = `set -e
ip link add dummy0 type dummy
ip link add ifb0 type ifb
ip link add ifb1 type ifb
`

// A container can give a link any name, as in its own network namespace, and
// has only the links that it made: the guest's modules make none.
func TestModulesMakeNoLinks(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := networkAdmin(ctx, t, newPod(ctx, t, d))
		before := works(ctx, t, c, "ls /sys/class/net")
		works(ctx, t, c, firstNames)
		works(ctx, t, c, "for link in dummy0 ifb0 ifb1; do ip link del $link; done")
		if after := works(ctx, t, c, "ls /sys/class/net"); after != before {
			t.Errorf("links %q, want %q", after, before)
		}
	})
}

// manyAtOnce makes concurrent requests for one module, and for others with the
// same needs.
const manyAtOnce = `
for i in 1 2 3; do
	ip link add b$i type bridge & pids="$pids $!"
	ip link add x$i type vxlan id $i dstport 4789 & pids="$pids $!"
	iptables-nft -t nat -A OUTPUT -p tcp -m multiport --dports 8$i -j REDIRECT & pids="$pids $!"
done
for pid in $pids; do wait $pid || exit 1; done
`

// The kernel runs a modprobe for each request, concurrently.
func TestModulesForManyAtOnce(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := networkAdmin(ctx, t, newPod(ctx, t, d), "CAP_SYSLOG")
		works(ctx, t, c, manyAtOnce)
		if said := works(ctx, t, c, "dmesg | grep modprobe || true"); said != "" {
			t.Errorf("the guest's kernel log says %s", said)
		}
	})
}

// The kernel of the guest finds the modules for links of every kind.
func TestLinksBringTheirModules(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := networkAdmin(ctx, t, newPod(ctx, t, d))
		if loaded(ctx, t, c)["bridge"] {
			t.Fatal("bridge is loaded before it is requested")
		}
		works(ctx, t, c, links)
		got := loaded(ctx, t, c)
		for _, name := range []string{
			"bridge", "stp", "llc", "veth", "8021q", "macvlan", "dummy", "vxlan", "udp_tunnel", "wireguard", "vrf",
		} {
			if !got[name] {
				t.Errorf("module %s is not loaded", name)
			}
		}
	})
}

// natRules are rules as Docker, kube-proxy and service meshes make them.
const natRules = `set -e
$1 -t nat -N MESH
$1 -t nat -A MESH -p tcp -m owner --uid-owner 1337 -j RETURN
$1 -t nat -A MESH -p tcp -m multiport --dports 80,443 -j REDIRECT --to-ports 15001
$1 -t nat -A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "published ports" -j MESH
$1 -t nat -A PREROUTING -p tcp --dport 8080 -m statistic --mode random --probability 0.5 -j DNAT --to-destination $2:80
$1 -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
$1 -t mangle -A PREROUTING -p tcp -m socket -j MARK --set-mark 1
$1 -t raw -A PREROUTING -p udp --dport 53 -j CT --notrack
$1 -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -m limit --limit 5/min -j LOG
$1 -A INPUT -p tcp --dport 23 -j REJECT
$1 -t nat -S
$1 -S
`

// iptables works, both over nf_tables and the legacy one, for both families.
// The legacy one needs ip_tables before it does anything for which the kernel
// would request a module. Docker's image in a pod loads it this way: a process
// that may load modules can load one by querying a link of that name (dev_load
// in net/core/dev_ioctl.c).
func TestIptablesBringsItsModules(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		for _, kind := range []string{"nft", "legacy"} {
			c := networkAdmin(ctx, t, newPod(ctx, t, d), "CAP_SYS_MODULE")
			if kind == "legacy" {
				try(ctx, t, c, "busybox ip link show ip_tables; busybox ip link show ip6_tables")
			}
			for _, tool := range []struct{ name, address string }{
				{"iptables-" + kind, "192.0.2.1"}, {"ip6tables-" + kind, "[2001:db8::1]"},
			} {
				p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", natRules, "sh", tool.name, tool.address}})
				if err != nil {
					t.Fatal(err)
				}
				if rules := p.Out.String(); code != 0 || strings.Count(rules, "-A ") != 7 {
					t.Errorf("%s: exit code %d, %s, rules:\n%s", tool.name, code, p.Err, rules)
				}
			}
			if got := loaded(ctx, t, c); got["nf_tables"] != (kind == "nft") || got["ip_tables"] != (kind == "legacy") {
				t.Errorf("with %s nf_tables is loaded: %v, ip_tables: %v", kind, got["nf_tables"], got["ip_tables"])
			}
		}
	})
}

// refused is what a container without rights over the network cannot do. Each
// command must fail.
const refused = `
! ip link add br0 type bridge || exit 1
! iptables-nft -t nat -S || exit 2
! iptables-legacy -t nat -S || exit 3
! busybox ip link show bridge || exit 4
`

// A container that may not change the network cannot load modules that way, and
// a request without a matching module fails as usual.
func TestModulesAreNotForEverybody(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "plain", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{hostTools},
		})
		works(ctx, t, c, refused)
		got := loaded(ctx, t, c)
		for _, name := range []string{"bridge", "nf_tables", "x_tables", "ip_tables"} {
			if got[name] {
				t.Errorf("module %s is loaded", name)
			}
		}
		admin := networkAdmin(ctx, t, pod)
		code, said := try(ctx, t, admin, "ip link add x type nosuchtype")
		if code == 0 || !strings.Contains(said, "Unknown device type") {
			t.Errorf("a link type that no kernel has: exit code %d, %s", code, said)
		}
	})
}
