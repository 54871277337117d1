package network

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// withRules is twoNICs with a table for each NIC, as CNI's sbr makes them, and a rule
// of each kind.
func withRules() *api.SetNetworkRequest {
	want := twoNICs()
	want.Routes = append(want.Routes,
		&api.Route{Interface: "net1", Destination: "192.168.7.0/24", Scope: unix.RT_SCOPE_LINK, Source: "192.168.7.9", Table: 100},
		&api.Route{Interface: "net1", Destination: "0.0.0.0/0", Gateway: "192.168.7.254", Table: 100},
		&api.Route{Interface: "eth0", Destination: "0.0.0.0/0", Gateway: "10.88.0.7", Table: 1000},
		&api.Route{Interface: "net1", Destination: "fd0a::/64", Table: 100},
		&api.Route{Interface: "net1", Destination: "::/0", Gateway: "fd0a::1", Table: 100},
		&api.Route{Destination: "0.0.0.0/0", Metric: 9, Table: 100, Type: unix.RTN_UNREACHABLE},
		&api.Route{Destination: "10.77.0.0/16", Type: unix.RTN_BLACKHOLE},
		&api.Route{Destination: "10.78.0.0/16", Table: 1000, Type: unix.RTN_THROW},
		&api.Route{Destination: "0.0.0.0/0", Table: 7, Type: unix.RTN_LOCAL},
		&api.Route{Destination: "::/0", Metric: 2000, Table: 100, Type: unix.RTN_PROHIBIT},
		&api.Route{Destination: "::/0", Table: 7, Type: unix.RTN_LOCAL},
	)
	want.Rules = []*api.Rule{
		{Priority: 10, Destination: "10.9.0.0/16", Action: fibrule.Unreachable},
		{Priority: 11, Destination: "10.10.0.0/16", Action: fibrule.Blackhole, Invert: true, Source: "10.88.0.2/32"},
		{Priority: 12, InInterface: "eth0", OutInterface: "net1", Action: fibrule.Prohibit},
		{Priority: 20, Source: "192.168.7.9/32", Action: fibrule.Lookup, Table: 100},
		{Priority: 20, Mark: 0x10, Mask: 0xf0, Action: fibrule.Lookup, Table: 1000},
		{Priority: 21, Mask: 0xff, Uids: &api.Range{Last: 0}, InInterface: "lo", Action: fibrule.Lookup, Table: 1000},
		{Priority: 30, Protocol: unix.IPPROTO_TCP, SourcePorts: &api.Range{First: 80, Last: 80}, DestinationPorts: &api.Range{First: 1, Last: 65534}, Action: fibrule.Lookup, Table: 100},
		{Priority: 31, Tos: 0x10, Action: fibrule.Lookup, Table: unix.RT_TABLE_MAIN, SuppressPrefixLength: proto.Uint32(0)},
		{Ipv6: true, Priority: 20, Source: "fd01::9/128", Action: fibrule.Lookup, Table: 100},
		{Ipv6: true, Priority: 40, Destination: "fd99::/64", Action: fibrule.Prohibit},
	}
	return want
}

// ruleTexts returns the kernel's rules in their order.
func ruleTexts(t *testing.T) []string {
	t.Helper()
	all, err := rules()
	must(t, err)
	var list []string
	for _, r := range all {
		list = append(list, r.String())
	}
	return list
}

// The kernel's first rules, IPv4's and then IPv6's.
var (
	first4 = []string{"IPv4 rule 0: from all lookup 255"}
	last4  = []string{"IPv4 rule 32766: from all lookup 254", "IPv4 rule 32767: from all lookup 253"}
	first6 = []string{"IPv6 rule 0: from all lookup 255"}
	last6  = []string{"IPv6 rule 32766: from all lookup 254"}
)

func TestRulesAndTables(t *testing.T) { inNamespace(t, testRulesAndTables) }

func testRulesAndTables(t *testing.T) {
	g := newGuest(t, 2)
	g.apply(withRules())
	want := slices.Concat(first4, []string{
		"IPv4 rule 10: from all to 10.9.0.0/16 unreachable",
		"IPv4 rule 11: not from 10.88.0.2/32 to 10.10.0.0/16 blackhole",
		"IPv4 rule 12: from all iif eth0 oif net1 prohibit",
		"IPv4 rule 20: from 192.168.7.9/32 lookup 100",
		"IPv4 rule 20: from all fwmark 0x10/0xf0 lookup 1000",
		"IPv4 rule 21: from all fwmark 0x0/0xff iif lo uidrange 0-0 lookup 1000",
		"IPv4 rule 30: from all ipproto 6 sport 80-80 dport 1-65534 lookup 100",
		"IPv4 rule 31: from all tos 0x10 lookup 254 suppress_prefixlength 0",
	}, last4, first6, []string{
		"IPv6 rule 20: from fd01::9/128 lookup 100",
		"IPv6 rule 40: from all to fd99::/64 prohibit",
	}, last6)
	if diff := cmp.Diff(want, ruleTexts(t)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	g.has("route 192.168.7.0/24 dev net1 src 192.168.7.9 table 100", "route 0.0.0.0/0 via 192.168.7.254 dev net1 table 100",
		"route 0.0.0.0/0 via 10.88.0.7 dev eth0 table 1000", "route 0.0.0.0/0 via 10.88.0.1 dev eth0",
		"route fd0a::/64 dev net1 metric 1024 table 100", "route ::/0 via fd0a::1 dev net1 metric 1024 table 100",
		"route unreachable 0.0.0.0/0 metric 9 table 100", "route blackhole 10.77.0.0/16", "route throw 10.78.0.0/16 table 1000",
		"route local 0.0.0.0/0 table 7", "route prohibit ::/0 metric 2000 table 100", "route local ::/0 metric 1024 table 7")

	// The interfaces exchange their names, and the rules follow.
	renamed := withRules()
	renamed.Interfaces[0].PciPath, renamed.Interfaces[1].PciPath = "01/01", "01/00"
	g.apply(renamed)
	if diff := cmp.Diff(want, ruleTexts(t)); diff != "" {
		t.Errorf("rules after a change of names (-want +got):\n%s", diff)
	}

	g.apply(&api.SetNetworkRequest{})
	if diff := cmp.Diff(slices.Concat(first4, last4, first6, last6), ruleTexts(t)); diff != "" {
		t.Errorf("rules after all were withdrawn (-want +got):\n%s", diff)
	}
	for _, line := range g.all() {
		if strings.Contains(line, " table ") || strings.Contains(line, "blackhole") {
			t.Errorf("%q was not withdrawn", line)
		}
	}
}

// Of rules with one priority the first is used, so their order is the host's, also
// after a change, and also if one is less exact than another. What containers made
// stays.
func TestRulesOfOnePriority(t *testing.T) { inNamespace(t, testRulesOfOnePriority) }

func testRulesOfOnePriority(t *testing.T) {
	g := newGuest(t, 0)
	lookup := func(table uint32, source string) *api.Rule {
		return &api.Rule{Priority: 50, Source: source, Action: fibrule.Lookup, Table: table}
	}
	foreign := fibrule.Rule{Priority: 50, Action: fibrule.Lookup, Table: 7, Suppress: fibrule.NoSuppression, Protocol: unix.IPPROTO_UDP}
	must(t, changeRule(unix.RTM_NEWRULE, unix.NLM_F_CREATE, foreign))
	exact, other := lookup(7, "10.1.0.0/16"), lookup(8, "10.1.2.0/24")
	all := lookup(7, "")
	for _, step := range [][]*api.Rule{{exact, all}, {all, exact}, {exact, other}, {other, exact, all}, {other, all}, {all}, {exact, all}, {exact}, {}} {
		g.apply(&api.SetNetworkRequest{Rules: step})
		want := []string{foreign.String()}
		for _, r := range step {
			from := r.GetSource()
			if from == "" {
				from = "all"
			}
			want = append(want, "IPv4 rule 50: from "+from+" lookup "+map[uint32]string{7: "7", 8: "8"}[r.GetTable()])
		}
		got := slices.DeleteFunc(ruleTexts(t), func(line string) bool { return !strings.Contains(line, "rule 50:") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("rules (-want +got):\n%s", diff)
		}
	}
}

// The host may have removed or moved the rules with which a namespace begins.
func TestAbsentRules(t *testing.T) { inNamespace(t, testAbsentRules) }

func testAbsentRules(t *testing.T) {
	g := newGuest(t, 0)
	moved := &api.SetNetworkRequest{
		Rules: []*api.Rule{{Priority: 100, Action: fibrule.Lookup, Table: unix.RT_TABLE_LOCAL}},
		AbsentRules: []*api.Rule{
			{Priority: 0, Action: fibrule.Lookup, Table: unix.RT_TABLE_LOCAL},
			{Ipv6: true, Priority: 32766, Action: fibrule.Lookup, Table: unix.RT_TABLE_MAIN},
		},
	}
	g.apply(moved)
	want := slices.Concat([]string{"IPv4 rule 100: from all lookup 255"}, last4, first6)
	if diff := cmp.Diff(want, ruleTexts(t)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	g.apply(&api.SetNetworkRequest{})
	if diff := cmp.Diff(slices.Concat(first4, last4, first6, last6), ruleTexts(t)); diff != "" {
		t.Errorf("rules after they came back (-want +got):\n%s", diff)
	}
}
