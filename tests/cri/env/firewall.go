package env

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// forwarding is the setting that the bridge plugin enables for every network
// with a gateway.
const forwarding = "/proc/sys/net/ipv4/ip_forward"

// firewall is what CNI's plugins change for the whole host and do not undo with
// the last pod: forwarding, and portmap's chains.
type firewall struct {
	forward []byte
	chains  map[string]bool
}

// readFirewall records the host's state.
func readFirewall() (firewall, error) {
	forward, err := os.ReadFile(forwarding)
	if err != nil {
		return firewall{}, fmt.Errorf("read forwarding: %w", err)
	}
	lines, err := natRules()
	if err != nil {
		return firewall{}, err
	}
	f := firewall{forward: forward, chains: map[string]bool{}}
	for _, chain := range sharedChains(lines) {
		f.chains[chain] = true
	}
	return f, nil
}

// restore restores the host's state, except for chains with rules of another
// user of CNI.
func (f firewall) restore() error {
	if err := os.WriteFile(forwarding, f.forward, 0o644); err != nil {
		return fmt.Errorf("restore forwarding: %w", err)
	}
	lines, err := natRules()
	if err != nil {
		return err
	}
	for _, line := range lines {
		if strings.Contains(line, "-j CNI-DN-") {
			return nil // a pod of another run has a host port
		}
	}
	for _, args := range undoChains(lines, f.chains) {
		if err := iptables(args...); err != nil {
			return err
		}
	}
	return nil
}

// undoChains returns the iptables commands that remove portmap's chains, except
// those that existed before: first the rules that jump to them, then their
// content, then the chains.
func undoChains(lines []string, before map[string]bool) [][]string {
	var jumps, flushes, removals [][]string
	for _, chain := range sharedChains(lines) {
		if before[chain] {
			continue
		}
		for _, line := range lines {
			rule, ok := strings.CutPrefix(line, "-A ")
			if ok && strings.HasSuffix(rule, "-j "+chain) && !strings.HasPrefix(rule, "CNI-") {
				jumps = append(jumps, append([]string{"-D"}, words(rule)...))
			}
		}
		flushes = append(flushes, []string{"-F", chain})
		removals = append(removals, []string{"-X", chain})
	}
	return slices.Concat(jumps, flushes, removals)
}

// sharedChains lists the chains that portmap makes once for all pods
// (containernetworking/plugins, plugins/meta/portmap).
func sharedChains(lines []string) []string {
	var chains []string
	for _, line := range lines {
		if name, ok := strings.CutPrefix(line, ":CNI-HOSTPORT-"); ok {
			name, _, _ = strings.Cut(name, " ")
			chains = append(chains, "CNI-HOSTPORT-"+name)
		}
	}
	return chains
}

// words splits a rule as iptables-save prints it, where only comments are quoted.
func words(rule string) []string {
	var all []string
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// rulesWith lists the rules and chains of the nat table that mention a word:
// CNI's plugins put the network's name into a comment of each.
func rulesWith(word string) ([]string, error) {
	lines, err := natRules()
	return matching(lines, word), err
}

func matching(lines []string, word string) []string {
	var found []string
	for _, line := range lines {
		if strings.Contains(line, word) {
			found = append(found, "firewall rule "+line)
		}
	}
	return found
}

func natRules() ([]string, error) {
	out, err := exec.Command("iptables-save", "-t", "nat").Output()
	if err != nil {
		return nil, fmt.Errorf("list firewall rules: %w", err)
	}
	return strings.Split(string(out), "\n"), nil
}

func iptables(args ...string) error {
	if out, err := exec.Command("iptables", append([]string{"-w", "5", "-t", "nat"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("iptables %v: %w: %s", args, err, out)
	}
	return nil
}
