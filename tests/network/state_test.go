package network

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// everything makes a network with one of each thing that a pod may have. %s is
// the other end's namespace.
const everything = `
	ip link add eth0 mtu 1300 address 02:00:00:00:77:01 type veth peer name far0 netns %[1]s
	ip link add net1 address 02:00:00:00:77:02 type veth peer name far1 netns %[1]s
	nsenter --net=%[1]s sh -ec 'for l in far0 far1; do ip link set $l up; done; ip link set far0 address 02:00:00:00:77:fe'
	ip addr add 10.78.0.2/24 brd + dev eth0
	ip addr add 10.78.0.3/24 brd + dev eth0
	ip addr add fd78::2/64 dev eth0 nodad
	ip addr add 192.0.2.7/32 dev net1
	ip addr add 10.79.0.1 peer 10.79.0.2/32 dev net1
	for l in lo net1; do echo 1 >/proc/sys/net/ipv6/conf/$l/disable_ipv6; done
	ip link set lo up
	ip link set eth0 up
	ip link set net1 up
	ip route add default via 10.78.0.1 dev eth0 src 10.78.0.3
	ip route add default via 169.254.1.1 dev net1 onlink metric 200
	ip -6 route add default via fd78::1 dev eth0
	ip route add 10.90.0.0/16 via 10.78.0.9 dev eth0 metric 50 mtu 1200
	ip route add 169.254.1.1 dev net1 scope link
	ip route add 10.91.0.0/16 via 10.78.0.9 dev eth0 proto kernel advmss 1100
	ip -6 route add fd90::/32 via fd78::9 dev eth0 metric 77
	ip route add default via 10.78.0.9 dev eth0 table 77
	ip -6 route add default via fd78::9 dev eth0 table 1077
	ip route add unreachable default metric 9 table 77
	ip route add local 0.0.0.0/0 dev lo table 78
	ip route add blackhole 10.92.0.0/16
	ip route add throw 10.93.0.0/16 table 77
	ip -6 route add prohibit fd93::/64
	ip rule add from 10.78.0.3 lookup 77 priority 100
	ip rule add fwmark 0x4/0xc iif net1 lookup 78 priority 101
	ip rule add to 10.99.0.0/16 prohibit priority 102
	ip rule add uidrange 1000-1000 ipproto tcp dport 25 unreachable priority 103
	ip rule add lookup main suppress_prefixlength 0 priority 104
	ip -6 rule add not from fd78::/64 lookup 1077 priority 100
	ip neigh add 10.78.0.1 lladdr 02:00:00:00:77:fe dev eth0 nud permanent
	ip neigh add fd78::1 lladdr 02:00:00:00:77:fe dev eth0 nud permanent
	ip neigh add 10.78.0.8 lladdr 03:bf:0a:4e:00:08 dev eth0 nud permanent
	ip neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev net1 nud permanent
`

// withEverything makes a namespace with that network.
func withEverything(t *testing.T, d *harness.Daemon) netns {
	t.Helper()
	ns, far := newNetns(t, d), newNetns(t, d)
	ns.do(t, fmt.Sprintf(everything, far))
	return ns
}

// What a container sees of its network is what the engine has made in the
// pod's namespace: names, MACs, MTUs, addresses, routes, neighbours.
func TestContainerSeesTheNamespace(t *testing.T) {
	ctx, d := begin(t)
	ns := withEverything(t, d)
	ns.do(t, "ip addr add 10.80.0.2/24 metric 60 dev net1")
	settled(ctx, t, ns)
	p := newPod(ctx, t, d, ns)
	p.sameState(ctx, t, ns)
	// Addresses of a kind, in hexadecimal, with interface and flags: nothing of
	// lo and net1, and 80 is IFA_F_PERMANENT, not tentative.
	const usable = "awk '{print $1, $3, $4, $5, $6}' /proc/net/if_inet6 | sort"
	eth0 := must(t, func() (string, error) { return ns.run("sh", "-c", usable) })
	if !strings.Contains(eth0, "fe80") {
		t.Fatalf("the namespace has no link-local address: %q", eth0)
	}
	if got := must(t, func() (string, error) { return runIn(ctx, p.box, "sh", "-c", usable) }); got != eth0 {
		t.Errorf("IPv6 addresses (-want +got):\n%s", cmp.Diff(eth0, got))
	}
	state := must(t, p.state(ctx))
	for _, line := range []string{
		"link eth0 mac 02:00:00:00:77:01 mtu 1300 up",
		"addr net1 10.79.0.1/32 peer 10.79.0.2/32",
		"neigh net1 169.254.1.1 ee:ee:ee:ee:ee:ee",
		"route 0.0.0.0/0 dev eth0 via 10.78.0.1 src 10.78.0.3",
		"route 0.0.0.0/0 dev net1 via 169.254.1.1 metric 200 onlink",
		"route 10.90.0.0/16 dev eth0 via 10.78.0.9 metric 50 mtu 1200",
		"route 10.80.0.0/24 dev net1 src 10.80.0.2 scope link metric 60",
		"route 10.91.0.0/16 dev eth0 via 10.78.0.9 advmss 1100",
		"route 0.0.0.0/0 dev eth0 via 10.78.0.9 table 77",
		"rule 100 from 10.78.0.3/32 table 77",
		"rule 100 v6 not from fd78::/64 table 1077",
	} {
		if !strings.Contains(state, line+"\n") {
			t.Errorf("the container does not see %q in\n%s", line, state)
		}
	}
}

// The same commands show the same with runc, in a namespace made alike.
func TestContainerSeesWhatRuncShows(t *testing.T) {
	ctx, d := begin(t)
	p := newPod(ctx, t, d, withEverything(t, d))
	box, err := d.Create(ctx, harness.ContainerConfig{
		Name: "runc", Args: []string{"sleep", "1000"}, Runtime: harness.Runc,
		Spec: []oci.SpecOpts{inNetns(withEverything(t, d))},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", box.Remove) })
	if err := box.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ip -o -4 addr", "ip -o -6 addr", "ip route", "ip -6 route", "ip rule", "ip -6 rule", "ip route show table 77",
		"ip route get 10.90.1.1 from 10.78.0.3", "ip route show table 78", "ip route get 10.99.0.1; ip route get 10.92.0.1; true",
		"ip neigh show nud permanent",
		"ip route get 10.90.1.1", "ip -6 route get fd90::1", "ip route get 192.0.2.99",
		"hostname -i; cat /sys/class/net/*/mtu /sys/class/net/*/address", "cat /sys/class/net/eth0/operstate",
	} {
		// Link-local addresses appear a moment after a link.
		read := func(c *harness.Container) func() (string, error) {
			return func() (string, error) {
				out, err := runIn(ctx, c, "sh", "-c", command)
				return essence(out), err
			}
		}
		want := must(t, read(box))
		t.Logf("%s:\n%s", command, want)
		eventually(ctx, t, command, want, read(p.box))
	}
}

// incidental is what may differ in ip's output: each kernel numbers its links,
// a link-local address is tentative for a moment (in runc's namespace too), and
// a route's uid and cache lines say nothing of the network.
var incidental = regexp.MustCompile(`(?m)^[0-9]+: |@if[0-9]+|@[a-z0-9]+| uid 0| tentative|^ *cache *$|\\ +`)

// essence removes what may differ, and sorts the lines.
func essence(out string) string {
	lines := strings.Split(incidental.ReplaceAllString(out, ""), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestComparable(t *testing.T) {
	const guest = "2: eth0@if7    inet 10.78.0.2/24 brd 10.78.0.255 scope global eth0\\       valid_lft forever preferred_lft forever\n"
	const runc = "9: eth0    inet 10.78.0.2/24 brd 10.78.0.255 scope global eth0\\       valid_lft forever preferred_lft forever\n"
	if diff := cmp.Diff(essence(runc), essence(guest)); diff != "" {
		t.Errorf("two outputs that mean the same (-want +got):\n%s", diff)
	}
	if essence(runc) == essence(strings.Replace(guest, "0.2/24", "0.3/24", 1)) {
		t.Error("two addresses are taken to be the same")
	}
}
