package network

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Policy rules, as of CNI's plugin sbr, do not reach the guest. The log says so, once,
// and nothing of a namespace without any.
func TestRulesAreNoted(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	noted := func() int {
		must(t, n.Plug(t.Context(), vm))
		count := 0
		for note := range n.told {
			if strings.Contains(note, "2 policy rules") {
				count++
			} else if strings.Contains(note, "policy rules") {
				t.Errorf("the log has %q", note)
			}
		}
		return count
	}
	if got := noted(); got != 0 {
		t.Errorf("%d notes without a rule", got)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rule := netlink.NewRule()
		rule.Family, rule.Table, rule.Priority = family, 100, 1000
		rule.Src = network(map[int]string{netlink.FAMILY_V4: "10.1.0.0/24", netlink.FAMILY_V6: "fd01::/64"}[family])
		err := p.ns.RuleAdd(rule)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this kernel has no policy routing")
		}
		must(t, err)
	}
	for range 2 {
		if got := noted(); got != 1 {
			t.Errorf("%d notes, want one: %q", got, slices.Collect(maps.Keys(n.told)))
		}
	}
}
