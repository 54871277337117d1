package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// wantRefused makes a pod, which must be refused with an error that contains
// each of words.
func wantRefused(ctx context.Context, t *testing.T, d *harness.Daemon, network oci.SpecOpts, words ...string) {
	t.Helper()
	p, err := d.NewPod(ctx, "refused", network)
	if err == nil {
		t.Fatalf("the pod was made, want an error with %q; %v", words, errors.Join(p.Remove(ctx)))
	}
	t.Logf("error: %v", err)
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error lacks %q: %v", word, err)
		}
	}
}

// A namespace that a guest cannot have is refused, the error names the reason,
// and the namespace is unchanged.
func TestNetworksThatNoGuestCanHave(t *testing.T) {
	needVM(t)
	for _, test := range []struct {
		name, commands string
		words          []string
	}{
		{"no MAC", "ip tuntap add dev tun0 mode tun; ip addr add 10.80.0.1/24 dev tun0; ip link set tun0 up", []string{"tun0", "MAC"}},
		{"MTU too large", `
			ip link add eth0 mtu 65535 type veth peer name far0
			ip addr add 10.80.0.2/24 dev eth0; ip link set eth0 up; ip link set far0 up`,
			[]string{"eth0", "65535"}},
		{"too many links", `
			for i in $(seq 29); do
				ip link add eth$i type veth peer name far$i
				ip addr add 10.83.$i.2/24 dev eth$i; ip link set eth$i up; ip link set far$i up
			done`,
			[]string{"28"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			ns := newNetns(t, d)
			ns.do(t, test.commands)
			before := settled(ctx, t, ns)
			wantRefused(ctx, t, d, inNetns(ns), test.words...)
			eventually(ctx, t, "the namespace after the pod", before, ns.all)
		})
	}
}

// A path that does not exist, or is not a network namespace.
func TestPathIsNoNamespace(t *testing.T) {
	for _, test := range []struct {
		name  string
		path  func(*testing.T) string
		words []string
	}{
		{"gone", func(t *testing.T) string { return t.TempDir() + "/gone" }, []string{"no such file"}},
		{"a file", func(*testing.T) string { return probePath() }, []string{"namespace"}},
		{"a namespace of another kind", func(*testing.T) string { return fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid()) }, []string{"namespace of another kind"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			path := test.path(t)
			words := append([]string{path}, test.words...)
			if !bed.runtime.VM {
				words = nil // runc words its errors differently
			}
			wantRefused(ctx, t, d, inNetns(netns(path)), words...)
		})
	}
}

// firstNetns is the network namespace of the machine's first process.
const firstNetns = "/proc/1/ns/net"

// The host's network cannot be a guest's: a pod that asks for it is refused.
func TestHostNetworkIsRefused(t *testing.T) {
	needVM(t)
	for _, test := range []struct {
		name    string
		network oci.SpecOpts
	}{
		{"the first process's namespace", inNetns(firstNetns)},
		{"the engine's namespace", inNetns(netns(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())))},
		{"no namespace", oci.WithHostNamespace(specs.NetworkNamespace)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := os.ReadFile(firstNetns); errors.Is(err, os.ErrPermission) && strings.HasPrefix(test.name, "the first") {
				t.Skipf("this machine's root may not look at its first process: %v", err)
			}
			ctx, d := begin(t)
			wantRefused(ctx, t, d, test.network, "host network")
		})
	}
}

// A second pod cannot have the links of a first one. It is refused, and the
// first pod's network is unchanged.
func TestSecondPodOfANamespace(t *testing.T) {
	needVM(t)
	for _, config := range []string{"", "[runtime]\ninternetworking_model = \"macvtap\"\n"} {
		t.Run(config, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, config)
			ns := newNetns(t, d)
			l := newBridge(t, d, 0).join(t, ns, "eth0")
			newPod(ctx, t, d, ns)
			netns("").checks(t, targets(1500, l.addrs()...)...)
			before := settled(ctx, t, ns)
			wantRefused(ctx, t, d, inNetns(ns), "eth0", "another VM")
			eventually(ctx, t, "the namespace after the second pod", before, ns.all)
			netns("").checks(t, targets(1500, l.addrs()...)...)
		})
	}
}

// A configuration that cannot apply to a namespace, or would replace what another
// program has set there, is refused rather than left out.
func TestConfigurationsThatCannotHold(t *testing.T) {
	needVM(t)
	for _, test := range []struct {
		name, config, commands string
		words                  []string
	}{
		{"limit of packets sent by an unknown interface", "[runtime]\ninternetworking_model = \"none\"\n" + rated, "true", []string{"none", "tx_rate_limiter_max_rate", "packets leave"}},
		{"queue of another program", rated, "tc qdisc add dev eth0 root tbf rate 1mbit burst 32k latency 50ms", []string{"eth0", "tbf"}},
		{"macvtap on a macvlan", macvtap, `
			ip link add base type veth peer name far
			ip link set base addrgenmode none; ip link set far addrgenmode none
			ip link add link base name net1 type macvlan mode bridge
			ip addr add 10.84.0.2/24 dev net1
			for l in base far net1; do ip link set $l up; done`, []string{"net1", "macvtap", "macvlan"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, test.config)
			ns := newNetns(t, d)
			newBridge(t, d, 0).join(t, ns, "eth0")
			ns.do(t, test.commands)
			before := settled(ctx, t, ns)
			wantRefused(ctx, t, d, inNetns(ns), test.words...)
			eventually(ctx, t, "the namespace after the pod", before, ns.all)
		})
	}
}
