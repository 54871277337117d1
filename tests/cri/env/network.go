package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/katabox/katabox/tests/harness"
)

// resultsDir is where libcni keeps what plugins answered, one file per pod and
// network (containernetworking/cni, libcni/api.go, CacheDir).
const resultsDir = "/var/lib/cni/results"

// linksDir has a directory for each link of the reader's network namespace.
const linksDir = "/sys/class/net"

// network is the pods' network: a bridge of the host, made by the CNI plugin
// with the first pod.
type network struct {
	name, bridge, confDir, leaseDir string
	linksDir                        string
	subnet                          netip.Prefix
}

// newNetwork chooses names and a subnet that no other run has, by the daemon's
// tag: two letters and eight hexadecimal digits.
func newNetwork(d *harness.Daemon) network {
	digits := strings.TrimPrefix(d.Tag(), "kb")
	var a, b byte
	_, _ = fmt.Sscanf(digits, "%02x%02x", &a, &b) // zero if it is not a number, which also gives a valid subnet
	dir := filepath.Join(d.Dir, "cni")
	return network{
		name: d.Tag(),
		// Not the tag itself: the bridge exists while the daemon runs, and is
		// not a pod's leak.
		bridge:   "br" + digits,
		confDir:  filepath.Join(dir, "net.d"),
		leaseDir: filepath.Join(dir, "leases"),
		linksDir: linksDir,
		// Of 10.128.0.0/9; the bridge has the first address.
		subnet: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 | a, b, 0}), 24),
	}
}

// conflist is the CNI configuration (CNI specification 1.0, section 1).
func (n network) conflist() string {
	type object = map[string]any
	text, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       n.name,
		"plugins": []object{{
			"type": "bridge", "bridge": n.bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true,
			"ipam": object{
				"type": "host-local", "dataDir": n.leaseDir,
				"ranges": [][]object{{{"subnet": n.subnet.String()}}},
				"routes": []object{{"dst": "0.0.0.0/0"}},
			},
		}, {
			"type": "portmap", "capabilities": object{"portMappings": true},
		}},
	}, "", "  ")
	if err != nil {
		return err.Error() // strings and booleans: it cannot fail
	}
	return string(text)
}

// leaks lists what pods have left in the network: ports of the bridge, leases,
// cached results, firewall rules; and Katabox's own devices, which are made in
// the pods' namespaces and so must never be visible here.
func (n network) leaks() ([]string, error) {
	var found []string
	add := func(kind, pattern string) error {
		paths, err := filepath.Glob(pattern)
		for _, path := range paths {
			found = append(found, kind+" "+path)
		}
		return err
	}
	err := errors.Join(
		add("bridge port", filepath.Join(n.linksDir, n.bridge, "brif", "*")),
		add("device", filepath.Join(n.linksDir, "tap*_k*")),
		add("device", filepath.Join(n.linksDir, "ifb*_k*")),
		// Its other files are the lock and the address given last.
		add("lease", filepath.Join(n.leaseDir, n.name, n.subnet.Addr().String()[:3]+"*")),
		add("CNI result", filepath.Join(resultsDir, n.name+"-*")),
	)
	if err != nil {
		return nil, fmt.Errorf("find leaks of the network: %w", err)
	}
	rules, err := rulesWith(n.name)
	return append(found, rules...), err
}

// remove removes the bridge; it is no error if it was never made.
func (n network) remove() error {
	link, err := netlink.LinkByName(n.bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove bridge %s: %w", n.bridge, err)
	}
	return nil
}

// forget removes cached results, which are outside of the daemon's directory.
func (n network) forget() {
	paths, _ := filepath.Glob(filepath.Join(resultsDir, n.name+"-*")) // the pattern is well formed
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // already reported as a leak
		}
	}
}
