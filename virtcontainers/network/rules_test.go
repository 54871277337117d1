package network

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// rule adds a policy rule to the pod's namespace.
func (p *pod) rule(t *testing.T, priority int, change func(*netlink.Rule)) {
	t.Helper()
	rule := netlink.NewRule()
	rule.Family, rule.Table, rule.Priority = netlink.FAMILY_V4, 100, priority
	change(rule)
	err := p.ns.RuleAdd(rule)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no policy routing")
	}
	must(t, err)
}

// Policy rules reach the guest, and so do the routes of the tables that they name:
// also those that a program has copied from the kernel's, as CNI's sbr does.
func TestStateOfRules(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth1 := p.veth(t, "eth1", "10.2.0.2/24", "fd02::2/64").Attrs().Index
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 100, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL, Src: []byte{10, 2, 0, 2}}, "10.2.0.0/24", "")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 100}, "0.0.0.0/0", "10.2.0.1")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 100}, "::/0", "fd02::1")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 1000, Flags: int(netlink.FLAG_ONLINK)}, "10.7.0.0/16", "10.8.0.1")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: unix.RT_TABLE_DEFAULT}, "10.9.0.0/16", "10.2.0.9")
	p.route(t, netlink.Route{LinkIndex: eth1, Table: 101}, "10.10.0.0/16", "10.2.0.1") // no rule names it
	p.route(t, netlink.Route{Table: 100, Type: unix.RTN_UNREACHABLE, Priority: 9}, "0.0.0.0/0", "")
	p.route(t, netlink.Route{Table: 100, Type: unix.RTN_PROHIBIT, Priority: 2000}, "::/0", "")
	p.route(t, netlink.Route{Table: 1000, Type: unix.RTN_LOCAL, LinkIndex: 1, Scope: netlink.SCOPE_HOST}, "0.0.0.0/0", "")
	p.route(t, netlink.Route{Table: 1000, Type: unix.RTN_LOCAL, LinkIndex: eth1, Scope: netlink.SCOPE_HOST}, "10.12.0.0/16", "")
	settle(t, p.ns)
	must(t, p.ns.RouteDel(&netlink.Route{LinkIndex: eth1, Dst: network("10.2.0.0/24"), Scope: netlink.SCOPE_LINK}))

	mask := uint32(0xf0)
	p.rule(t, 10, func(r *netlink.Rule) { r.Src = network("10.2.0.2/32") })
	p.rule(t, 10, func(r *netlink.Rule) { r.Dst, r.Mark, r.Mask, r.Invert = network("10.5.0.0/16"), 0x1f, &mask, true })
	p.rule(t, 11, func(r *netlink.Rule) {
		r.IifName, r.OifName, r.Tos, r.IPProto, r.Table = "eth0", "lo", 0x10, unix.IPPROTO_TCP, 1000
		r.Sport, r.Dport, r.UIDRange = netlink.NewRulePortRange(80, 80), netlink.NewRulePortRange(1, 9), netlink.NewRuleUIDRange(0, 5)
	})
	p.rule(t, 12, func(r *netlink.Rule) { r.Table, r.SuppressPrefixlen = unix.RT_TABLE_MAIN, 0 })
	p.rule(t, 13, func(r *netlink.Rule) { r.Table, r.Type, r.Dst = 0, fibrule.Unreachable, network("10.6.0.0/16") })
	p.rule(t, 10, func(r *netlink.Rule) { r.Family, r.Src = netlink.FAMILY_V6, network("fd02::2/128") })
	p.rule(t, 20, func(r *netlink.Rule) { r.Table, r.Goto = 0, 30 })
	p.rule(t, 30, func(r *netlink.Rule) { r.IifName = "absent" })
	must(t, n.Plug(t.Context(), vm))

	const lookup = fibrule.Lookup
	want := &api.SetNetworkRequest{
		Routes: []*api.Route{
			{Destination: "0.0.0.0/0", Metric: 9, Table: 100, Type: unix.RTN_UNREACHABLE},
			{Interface: "eth1", Destination: "10.2.0.0/24", Source: "10.2.0.2", Scope: unix.RT_SCOPE_LINK, Table: 100},
			{Destination: "::/0", Metric: 2000, Table: 100, Type: unix.RTN_PROHIBIT},
			{Destination: "0.0.0.0/0", Table: 1000, Type: unix.RTN_LOCAL},
			{Interface: "eth1", Destination: "10.9.0.0/16", Gateway: "10.2.0.9", Table: unix.RT_TABLE_DEFAULT, Onlink: true},
			{Interface: "eth1", Destination: "10.7.0.0/16", Gateway: "10.8.0.1", Onlink: true, Table: 1000},
			{Interface: "eth1", Destination: "0.0.0.0/0", Gateway: "10.2.0.1", Table: 100},
			{Interface: "eth1", Destination: "::/0", Gateway: "fd02::1", Metric: 1024, Table: 100},
		},
		Rules: []*api.Rule{
			{Priority: 10, Source: "10.2.0.2/32", Action: lookup, Table: 100},
			{Priority: 10, Destination: "10.5.0.0/16", Mark: 0x10, Mask: 0xf0, Invert: true, Action: lookup, Table: 100},
			{
				Priority: 11, InInterface: "eth0", OutInterface: "lo", Tos: 0x10, Protocol: unix.IPPROTO_TCP, SourcePorts: &api.Range{First: 80, Last: 80},
				DestinationPorts: &api.Range{First: 1, Last: 9}, Uids: &api.Range{Last: 5}, Action: lookup, Table: 1000,
			},
			{Priority: 12, Action: lookup, Table: unix.RT_TABLE_MAIN, SuppressPrefixLength: proto.Uint32(0)},
			{Priority: 13, Destination: "10.6.0.0/16", Action: fibrule.Unreachable},
			{Ipv6: true, Priority: 10, Source: "fd02::2/128", Action: lookup, Table: 100},
		},
	}
	got := n.State()
	if diff := cmp.Diff(want, &api.SetNetworkRequest{Routes: got.GetRoutes(), Rules: got.GetRules(), AbsentRules: got.GetAbsentRules()}, protocmp.Transform()); diff != "" {
		t.Errorf("routes and rules (-want +got):\n%s", diff)
	}
	if a := got.GetInterfaces()[1].GetAddresses()[0]; !a.GetNoPrefixRoute() {
		t.Errorf("the guest's kernel makes the route of %s that was moved to another table", a)
	}
	for _, note := range []string{"route to 10.12.0.0/16: of type local", "IPv4 rule 20: from all goto: with goto", "IPv4 rule 30: from all iif absent lookup 100: names a link without a NIC"} {
		found := false
		for told := range n.told {
			found = found || strings.HasPrefix(told, note)
		}
		if !found {
			t.Errorf("the log has no %q: %v", note, n.told)
		}
	}
}

// The rules with which a namespace begins may have been removed, or moved.
func TestStateOfAbsentRules(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	if got := n.State(); len(got.GetRules())+len(got.GetAbsentRules()) > 0 {
		t.Errorf("rules of a new namespace: %v and %v", got.GetRules(), got.GetAbsentRules())
	}
	local := netlink.NewRule()
	local.Family, local.Table, local.Priority = netlink.FAMILY_V4, unix.RT_TABLE_LOCAL, 100
	must(t, p.ns.RuleAdd(local))
	local.Priority = 0
	must(t, p.ns.RuleDel(local))
	must(t, n.Plug(t.Context(), vm))
	want := &api.SetNetworkRequest{
		Rules:       []*api.Rule{{Priority: 100, Action: fibrule.Lookup, Table: unix.RT_TABLE_LOCAL}},
		AbsentRules: []*api.Rule{{Action: fibrule.Lookup, Table: unix.RT_TABLE_LOCAL}},
	}
	got := n.State()
	if diff := cmp.Diff(want, &api.SetNetworkRequest{Rules: got.GetRules(), AbsentRules: got.GetAbsentRules()}, protocmp.Transform()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// A rule that comes late, and a route of its table, are changes.
func TestWatchRules(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	changed := make(chan struct{}, 8)
	ended := make(chan error, 1)
	go func() {
		ended <- n.Watch(t.Context(), func() error {
			err := n.Plug(t.Context(), vm)
			changed <- struct{}{}
			return err
		})
	}()
	await := func(what string, done func() bool) {
		t.Helper()
		over := time.After(20 * time.Second)
		for !done() {
			select {
			case <-changed:
			case err := <-ended:
				t.Fatalf("%s: the watch ended: %v", what, err)
			case <-over:
				t.Fatalf("%s: no change was seen", what)
			}
		}
	}
	p.rule(t, 10, func(r *netlink.Rule) { r.Family, r.Src = netlink.FAMILY_V6, network("fd01::2/128") })
	await("a rule", func() bool { return len(n.State().GetRules()) == 1 })
	p.route(t, netlink.Route{LinkIndex: linkOf(t, p.ns, "eth0").Attrs().Index, Table: 100}, "::/0", "fd01::1")
	await("a route", func() bool {
		return slices.ContainsFunc(n.State().GetRoutes(), func(r *api.Route) bool { return r.GetTable() == 100 })
	})
}
