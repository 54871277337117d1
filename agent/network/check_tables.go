package network

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

const (
	// maxRouteMTU is the largest MTU of a route (net/ipv4/metrics.c,
	// ip_metrics_convert, lowers larger ones).
	maxRouteMTU = maxMTU - 15
	// maxAdvMSS is the largest segment size that a route advertises; the same
	// function lowers larger ones.
	maxAdvMSS = maxMTU - 40
	// metric6 is the kernel's metric for an IPv6 route without one
	// (include/uapi/linux/ipv6_route.h, IP6_RT_PRIO_USER).
	metric6 = 1024
	// maxDNSEntry is the length of a server, a search domain or an option in
	// bytes; a domain name has 253 characters at most.
	maxDNSEntry = 255
)

func (c *checker) routes(req *api.SetNetworkRequest) error {
	if err := tooMany("routes", len(req.GetRoutes()), api.MaxRoutes); err != nil {
		return err
	}
	seen := map[route]bool{}
	for i, in := range req.GetRoutes() {
		r, err := c.route(fmt.Sprintf("routes[%d]", i), in)
		if err != nil {
			return err
		}
		if !seen[r] {
			seen[r] = true
			c.state.routes = append(c.state.routes, r)
		}
	}
	return nil
}

// route reads one route and normalizes it as the kernel does: IPv6 has no scope
// and always a metric.
func (c *checker) route(field string, in *api.Route) (route, error) {
	r := route{scope: uint8(in.GetScope()), onlink: in.GetOnlink(), mtu: int(in.GetMtu()), advMSS: int(in.GetAdvMss()), metric: int(in.GetMetric())}
	err := c.placeRoute(field, in, &r)
	if err != nil {
		return r, err
	}
	r.destination, err = netip.ParsePrefix(in.GetDestination())
	if err != nil || r.destination != r.destination.Masked() || r.destination.Addr().Is4In6() {
		return r, wrong(field+".destination", in.GetDestination(), `a network without host bits, as "10.0.0.0/8"`)
	}
	if r.gateway, err = checkAddr(field+".gateway", in.GetGateway(), r.destination.Addr()); err != nil {
		return r, err
	}
	if r.source, err = checkAddr(field+".source", in.GetSource(), r.destination.Addr()); err != nil {
		return r, err
	}
	if r.mtu > maxRouteMTU {
		return r, fmt.Errorf("%s.mtu is %d, want at most %d: %w", field, r.mtu, maxRouteMTU, errdefs.ErrInvalidArgument)
	}
	if r.advMSS > maxAdvMSS {
		return r, fmt.Errorf("%s.adv_mss is %d, want at most %d: %w", field, r.advMSS, maxAdvMSS, errdefs.ErrInvalidArgument)
	}
	r.onlink = r.onlink && r.gateway.IsValid() // It only applies to gateways.
	if err := checkScope(field, in); err != nil {
		return r, err
	}
	if r.destination.Addr().Is6() {
		r.scope = unix.RT_SCOPE_UNIVERSE
		if r.metric == 0 {
			r.metric = metric6
		}
	}
	return r, nil
}

// placeRoute reads a route's table, its type, and its interface, if it has one.
func (c *checker) placeRoute(field string, in *api.Route, r *route) (err error) {
	if r.table, err = checkTable(field, in.GetTable()); err != nil {
		return err
	}
	if r.kind, err = checkKind(field, in); err != nil || r.kind != 0 {
		return err
	}
	r.nic, err = c.place(field, in.GetInterface())
	return err
}

// routeKinds are the types of routes without an interface.
var routeKinds = map[int]string{
	unix.RTN_LOCAL: "local", unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
}

func checkKind(field string, in *api.Route) (int, error) {
	if in.GetType() == 0 {
		return 0, nil
	}
	kind := int(in.GetType())
	if _, ok := routeKinds[kind]; !ok {
		return 0, fmt.Errorf("%s.type is %d, want 0, local, blackhole, unreachable, prohibit or throw: %w", field, kind, errdefs.ErrInvalidArgument)
	}
	bare := &api.Route{Destination: in.GetDestination(), Metric: in.GetMetric(), Table: in.GetTable(), Type: in.GetType()}
	if !proto.Equal(bare, in) {
		return 0, fmt.Errorf("%s is of type %s, want only a destination, a metric and a table: %w", field, routeKinds[kind], errdefs.ErrInvalidArgument)
	}
	return kind, nil
}

// checkTable accepts every table but the local one, whose routes are the kernel's.
func checkTable(field string, table uint32) (int, error) {
	switch table {
	case unix.RT_TABLE_UNSPEC:
		return unix.RT_TABLE_MAIN, nil
	case unix.RT_TABLE_LOCAL:
		return 0, fmt.Errorf("%s.table is %d, want another one than the local table: %w", field, table, errdefs.ErrInvalidArgument)
	default:
		return int(table), nil
	}
}

// checkScope accepts rtnetlink(7)'s scopes except RT_SCOPE_NOWHERE; a route
// with a gateway cannot have link scope.
func checkScope(field string, in *api.Route) error {
	most, what := uint32(unix.RT_SCOPE_HOST), ""
	if in.GetGateway() != "" {
		most, what = unix.RT_SCOPE_LINK-1, " with a gateway"
	}
	if in.GetScope() > most {
		return fmt.Errorf("%s.scope is %d, want at most %d%s: %w", field, in.GetScope(), most, what, errdefs.ErrInvalidArgument)
	}
	return nil
}

// place returns an interface's index in the request.
func (c *checker) place(field, name string) (int, error) {
	i, ok := c.names[name]
	if !ok {
		return 0, wrong(field+".interface", name, "the name of an interface in the request")
	}
	return i, nil
}

func (c *checker) neighbours(req *api.SetNetworkRequest) error {
	if err := tooMany("neighbours", len(req.GetNeighbours()), api.MaxNeighbours); err != nil {
		return err
	}
	type key struct {
		nic     int
		address netip.Addr
	}
	seen := map[key]bool{}
	for i, in := range req.GetNeighbours() {
		field := fmt.Sprintf("neighbours[%d]", i)
		n := neighbour{}
		var err error
		if n.nic, err = c.place(field, in.GetInterface()); err != nil {
			return err
		}
		n.address, err = netip.ParseAddr(in.GetAddress())
		if err != nil || !isStation(n.address) {
			return wrong(field+".address", in.GetAddress(), "the address of one station without a zone")
		}
		if n.mac, err = checkNeighbour(field, in.GetMac()); err != nil {
			return err
		}
		k := key{n.nic, n.address}
		if seen[k] {
			return wrong(field+".address", in.GetAddress(), "an address that is named once for an interface")
		}
		seen[k] = true
		c.state.neighbours = append(c.state.neighbours, n)
	}
	return nil
}

// checkNeighbour accepts also a group's address, as of a cluster whose members
// receive the same packets.
func checkNeighbour(field string, mac []byte) (valid [macLen]byte, err error) {
	if len(mac) != macLen || [macLen]byte(mac) == valid {
		return valid, fmt.Errorf("%s.mac is %x, want %d bytes that are not zero: %w", field, mac, macLen, errdefs.ErrInvalidArgument)
	}
	return [macLen]byte(mac), nil
}

// dns makes the text of resolv.conf (resolv.conf(5)).
func (c *checker) dns(req *api.SetNetworkRequest) error {
	dns := req.GetDns()
	for i, server := range dns.GetServers() {
		if _, err := netip.ParseAddr(server); err != nil {
			return wrong(fmt.Sprintf("dns.servers[%d]", i), server, "an address")
		}
	}
	var text strings.Builder
	for _, list := range []struct {
		field, keyword string
		entries        []string
		perLine        int
	}{
		{"dns.servers", "nameserver", dns.GetServers(), 1},
		{"dns.searches", "search", dns.GetSearches(), len(dns.GetSearches())},
		{"dns.options", "options", dns.GetOptions(), len(dns.GetOptions())},
	} {
		if err := tooMany(list.field, len(list.entries), api.MaxDNSEntries); err != nil {
			return err
		}
		for i, entry := range list.entries {
			if entry == "" || len(entry) > maxDNSEntry || strings.ContainsFunc(entry, isBlank) {
				return wrong(fmt.Sprintf("%s[%d]", list.field, i), entry, fmt.Sprintf("1 to %d bytes without blanks", maxDNSEntry))
			}
		}
		for ; len(list.entries) > 0; list.entries = list.entries[list.perLine:] {
			text.WriteString(list.keyword + " " + strings.Join(list.entries[:list.perLine], " ") + "\n")
		}
	}
	c.state.resolver = text.String()
	return nil
}
