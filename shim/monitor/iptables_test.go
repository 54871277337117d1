package monitor

import (
	"testing"

	"github.com/katabox/katabox/virtcontainers/guest"
)

func TestIPTables(t *testing.T) {
	root := newRoot(t)
	running(t, root, "p1")
	p, err := Find(root, "p1")
	if err != nil {
		t.Fatal(err)
	}
	for ipv6, want := range map[bool]string{false: "IPv6 false", true: "IPv6 true"} {
		if rules, err := p.IPTables(t.Context(), ipv6); err != nil || string(rules) != "rules of p1, "+want {
			t.Errorf("%q, %v", rules, err)
		}
		// The guest's text is in one line, and cannot control a terminal.
		err := p.SetIPTables(t.Context(), ipv6, make([]byte, guest.MaxIPTables))
		if wanted := "set iptables of pod p1: 500 Internal Server Error: " + want + ", 1048576 bytes: \\x1b[2J\\x00line 1 failed"; err == nil || err.Error() != wanted {
			t.Errorf("%q, want %q", err, wanted)
		}
	}
}
