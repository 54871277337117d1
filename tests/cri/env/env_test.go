package env

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What iptables-save prints when portmap has run and no pod is left.
const savedRules = `*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
COMMIT`

func TestUndoChains(t *testing.T) {
	lines := strings.Split(savedRules, "\n")
	var got []string
	for _, args := range undoChains(lines, map[string]bool{}) {
		got = append(got, strings.Join(args, "|"))
	}
	want := []string{
		"-D|PREROUTING|-m|addrtype|--dst-type|LOCAL|-j|CNI-HOSTPORT-DNAT",
		"-D|OUTPUT|-m|addrtype|--dst-type|LOCAL|-j|CNI-HOSTPORT-DNAT",
		"-D|POSTROUTING|-m|comment|--comment|CNI portfwd requiring masquerade|-j|CNI-HOSTPORT-MASQ",
		"-F|CNI-HOSTPORT-DNAT", "-F|CNI-HOSTPORT-MASQ", "-X|CNI-HOSTPORT-DNAT", "-X|CNI-HOSTPORT-MASQ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	before := map[string]bool{"CNI-HOSTPORT-DNAT": true, "CNI-HOSTPORT-MASQ": true}
	if got := undoChains(lines, before); len(got) > 0 {
		t.Errorf("chains of others are removed: %v", got)
	}
}

// A leak check that finds nothing proves nothing unless it can find something.
func TestLeaksOfTheNetworkAreFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the firewall's rules need root")
	}
	n := network{name: "kbleaktest", bridge: "br0", leaseDir: t.TempDir(), linksDir: t.TempDir(), subnet: netip.MustParsePrefix("10.200.1.0/24")}
	for _, name := range []string{"br0/brif/veth1", "eth0", "ifb0", "tap2_kata"} {
		if err := os.MkdirAll(filepath.Join(n.linksDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(n.leaseDir, n.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// host-local keeps the last two when no pod is left.
	for _, name := range []string{"10.200.1.7", "last_reserved_ip.0", "lock"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := n.leaks()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bridge port " + filepath.Join(n.linksDir, "br0/brif/veth1"),
		"device " + filepath.Join(n.linksDir, "tap2_kata"),
		"lease " + filepath.Join(dir, "10.200.1.7"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leaks (-want +got):\n%s", diff)
	}
	if rules := matching(strings.Split(savedRules, "\n"), "portfwd"); len(rules) != 1 {
		t.Errorf("rules that mention a word: %v", rules)
	}
}
