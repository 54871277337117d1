package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// pluginDir is where Debian's containernetworking-plugins are.
const pluginDir = "/usr/lib/cni"

type object = map[string]any

// cni is a CNI network: plugins that run one after the other (CNI
// specification 1.0.0, section 3).
type cni struct {
	name     string
	plugins  []object
	leaseDir string
	// gateway4 and gateway6 are the host's addresses, net4 and net6 the pods'
	// networks.
	gateway4, gateway6 netip.Addr
	net4, net6         netip.Prefix
}

// newCNI makes a network with separate ranges for both families. plugin is the
// first plugin's configuration; name, type and so on are filled in.
func newCNI(t *testing.T, d *harness.Daemon, plugin object, more ...object) *cni {
	t.Helper()
	bed.networks++
	n := &cni{
		name:     fmt.Sprintf("%s-%d", d.Tag(), bed.networks),
		leaseDir: t.TempDir(),
		net4:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(bed.networks), 0}), 24),
		net6:     netip.MustParsePrefix(fmt.Sprintf("fd77:%x::/64", bed.networks)),
	}
	n.gateway4, n.gateway6 = n.net4.Addr().Next(), n.net6.Addr().Next()
	plugin["ipam"] = object{
		"type": "host-local", "dataDir": n.leaseDir,
		"ranges": [][]object{{{"subnet": n.net4.String()}}, {{"subnet": n.net6.String()}}},
		"routes": []object{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
	}
	n.plugins = append([]object{plugin}, more...)
	for _, p := range n.plugins {
		p["cniVersion"], p["name"] = "1.0.0", n.name
	}
	t.Cleanup(func() {
		if leases, err := n.leases(); err != nil || len(leases) > 0 {
			t.Errorf("leases left: %v, error %v", leases, err)
		}
	})
	return n
}

// newBridge makes a network of the bridge plugin; an MTU of 0 is the plugin's
// default.
func newBridge(t *testing.T, d *harness.Daemon, mtu int) *cni {
	t.Helper()
	plugin := object{"type": "bridge", "isGateway": true, "hairpinMode": true}
	if mtu != 0 {
		plugin["mtu"] = mtu
	}
	n := newCNI(t, d, plugin)
	n.useBridge(t)
	return n
}

// useBridge names the network's bridge, and removes it at the test's end.
func (n *cni) useBridge(t *testing.T) {
	bridge := fmt.Sprintf("kbr%d", bed.networks)
	n.plugins[0]["bridge"] = bridge
	t.Cleanup(func() {
		if _, err := netns("").run("ip", "link", "del", bridge); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			t.Error(err)
		}
	})
}

// lease is a pod's interface in a network, and what the plugins need to remove
// it.
type lease struct {
	network          *cni
	ns               netns
	container, iface string
	args             object
	addr4, addr6     netip.Addr
}

// addrs returns the addresses that CNI assigned to the pod.
func (l *lease) addrs() []netip.Addr { return []netip.Addr{l.addr4, l.addr6} }

// gateways returns the host's addresses.
func (n *cni) gateways() []netip.Addr { return []netip.Addr{n.gateway4, n.gateway6} }

// join adds a network's interface to a namespace, and removes it at the test's
// end. It returns when the IPv6 addresses of both ends can be used: a bridge's
// stays tentative for a while after the bridge gets its first port.
func (n *cni) join(t *testing.T, ns netns, iface string) *lease {
	t.Helper()
	l, err := n.add(ns, iface, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.del(); err != nil {
			t.Error(err)
		}
	})
	settled(t.Context(), t, ns)
	settled(t.Context(), t, "")
	return l
}

// add asks every plugin to add an interface; args are the runtimeConfig of
// plugins with capabilities. On an error the interface is removed again.
func (n *cni) add(ns netns, iface string, args object) (*lease, error) {
	l := &lease{network: n, ns: ns, container: n.name + "-" + filepath.Base(string(ns)), iface: iface, args: args}
	var result object
	for _, p := range n.plugins {
		out, err := l.plugin("ADD", p, result)
		if err != nil {
			return nil, errors.Join(err, l.del())
		}
		result = nil
		if err := json.Unmarshal(out, &result); err != nil {
			return nil, errors.Join(fmt.Errorf("read the plugin's result %q: %w", out, err), l.del())
		}
	}
	return l, l.read(result)
}

// read reads the addresses from a result.
func (l *lease) read(result object) error {
	ips, _ := result["ips"].([]any)
	for _, ip := range ips {
		entry, _ := ip.(object)
		text, _ := entry["address"].(string)
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("read the plugin's address: %w", err)
		}
		if prefix.Addr().Is4() {
			l.addr4 = prefix.Addr()
		} else {
			l.addr6 = prefix.Addr()
		}
	}
	return nil
}

// del asks every plugin, the last first, to remove what it added. What is gone
// already is not an error (CNI specification, section 2, DEL).
func (l *lease) del() error {
	var errs []error
	for _, p := range slices.Backward(l.network.plugins) {
		_, err := l.plugin("DEL", p, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// plugin runs one plugin.
func (l *lease) plugin(command string, config, previous object) ([]byte, error) {
	full := object{}
	for key, value := range config {
		full[key] = value
	}
	if previous != nil {
		full["prevResult"] = previous
	}
	if l.args != nil && config["capabilities"] != nil {
		full["runtimeConfig"] = l.args
	}
	stdin, err := json.Marshal(full)
	if err != nil {
		return nil, err
	}
	kind, _ := config["type"].(string)
	cmd := exec.Command(filepath.Join(pluginDir, kind))
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_PATH=" + pluginDir, "CNI_COMMAND=" + command,
		"CNI_CONTAINERID=" + l.container, "CNI_NETNS=" + string(l.ns), "CNI_IFNAME=" + l.iface,
	}
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("CNI plugin %s, %s: %w: %s", kind, command, err, out) // the error is on stdout
	}
	return out, nil
}

// leases returns the addresses that host-local has assigned; its other files
// are its lock and the address assigned last.
func (n *cni) leases() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(n.leaseDir, n.name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var held []string
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip") {
			held = append(held, e.Name())
		}
	}
	return held, err
}

// firewallRules returns the rules of both families, without counters and
// comments.
func firewallRules() ([]string, error) {
	var rules []string
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out, err := netns("").run(save)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "-A ") {
				rules = append(rules, save+": "+strings.TrimSpace(line))
			}
		}
	}
	return rules, nil
}

// noRoutes removes the routes to other networks from the configuration.
func (n *cni) noRoutes() {
	if ipam, ok := n.plugins[0]["ipam"].(object); ok {
		delete(ipam, "routes")
	}
}
