package virtcontainers_test

import (
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// Rules go into the guest and come back, whatever bytes they are; too many of them
// are a guest's lie.
func TestIPTables(t *testing.T) {
	p := newPod(t)
	p.run("c1")
	const rules = "# \xff\x00\nCOMMIT\n"
	if err := p.SetIPTables(t.Context(), true, []byte(rules)); err != nil {
		t.Fatal(err)
	}
	for ipv6, want := range map[bool]string{true: rules, false: ""} {
		if got, err := p.IPTables(t.Context(), ipv6); err != nil || string(got) != want {
			t.Errorf("IPv6 %t: %q, %v", ipv6, got, err)
		}
	}
	if err := p.SetIPTables(t.Context(), false, []byte("x")); err == nil || !strings.Contains(err.Error(), "set iptables of the guest: ") {
		t.Errorf("rules that are refused: %v", err)
	}
	p.host.Agent.SetTables(false, make([]byte, guest.MaxIPTables+1))
	if _, err := p.IPTables(t.Context(), false); err == nil || !strings.Contains(err.Error(), "the answer has 1048577 bytes, want at most 1048576") {
		t.Errorf("too many rules: %v", err)
	}
}
