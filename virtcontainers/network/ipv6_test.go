package network

import (
	"os"
	"path/filepath"
	"testing"
)

// A link whose IPv6 is switched off has none in the guest either, nor has lo. It
// is another network when it is switched on.
func TestWithoutIPv6(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.veth(t, "eth1", "10.2.0.2/24")
	disable := func(name, value string) {
		t.Helper()
		must(t, p.ns.do(func() error {
			return os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte(value), 0)
		}))
	}
	disable("lo", "1")
	disable("eth1", "1")
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	expect := func(lo, eth1 bool) {
		t.Helper()
		state := n.State()
		if state.GetLoWithoutIpv6() != lo {
			t.Errorf("lo without IPv6: %v, want %v", !lo, lo)
		}
		for i, want := range []bool{false, eth1} {
			if in := state.GetInterfaces()[i]; in.GetWithoutIpv6() != want {
				t.Errorf("%s without IPv6: %v, want %v", in.GetName(), !want, want)
			}
		}
	}
	expect(true, true)
	disable("lo", "0")
	disable("eth1", "0")
	if differs, err := n.differs(t.Context()); err != nil || !differs {
		t.Errorf("switched on, the namespace differs: %v, %v", differs, err)
	}
	must(t, n.Plug(t.Context(), vm))
	expect(false, false)
}
