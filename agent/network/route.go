package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks the agent's routes, as an administrator's (rtnetlink(7)).
const protocol = unix.RTPROT_STATIC

// addRoutes adds the missing routes: those without a gateway first, because
// gateways are reached through them. A route that is missing although it was added by an
// earlier call was removed or replaced by a container, as by a VPN, and stays so. Those of
// a NIC that a container has set down are left out until it is up.
func (j *job) addRoutes(ctx context.Context) error {
	if len(j.want.routes) == 0 {
		return nil
	}
	have, err := routes()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	keys := map[routeKey]int{}
	for _, r := range j.want.routes {
		keys[r.key()]++
	}
	for _, withGateway := range []bool{false, true} {
		for _, r := range j.want.routes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if j.keptDown[r.index] {
				delete(j.own.routes, r.unplaced()) // lost with the NIC's state
				continue
			}
			if r.gateway.IsValid() != withGateway || have[r.unplaced()] || j.keepsAway(r) {
				continue
			}
			if err := j.addRoute(r, keys[r.key()] > 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepsAway reports whether a container has removed a route, and not what this job did to its NIC.
func (j *job) keepsAway(r route) bool {
	_, added := j.own.routes[r.unplaced()]
	return added && !j.own.disturbed[r.index]
}

// routeKey is what distinguishes routes in the kernel.
type routeKey struct {
	destination   netip.Prefix
	metric, table int
}

func (r route) key() routeKey { return routeKey{r.destination, r.metric, r.table} }

// unplaced returns the route without its interface's index in the request,
// which may differ in the next request.
func (r route) unplaced() route {
	r.nic = 0
	return r
}

// addRoute adds one route. It replaces a foreign route with the same key,
// unless several with that key are wanted.
func (j *job) addRoute(r route, several bool) error {
	device := ""
	if r.kind == 0 {
		device = j.want.nics[r.nic].name
	}
	add := netlink.RouteReplace
	if several {
		add = netlink.RouteAppend
	}
	err := add(r.netlink())
	if err != nil && r.gateway.IsValid() && len(j.own.rules)+len(j.own.absent) > 0 {
		// The kernel looks the gateway up, and may have been kept from finding it.
		if err := j.suspendRules(); err != nil {
			return err
		}
		err = add(r.netlink())
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", r.text(device), explainRoute(r, err))
	}
	j.own.routes[r.unplaced()] = struct{}{}
	j.changes.addf("%s added", r.text(device))
	return nil
}

// explainRoute adds to an error what to check.
func explainRoute(r route, err error) error {
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return fmt.Errorf("check that the gateway is in a network of the interface, or mark the route onlink: %w", err)
	case errors.Is(err, unix.EINVAL) && r.source.IsValid():
		return fmt.Errorf("check that %s is an address of the guest's, and the gateway another station's on this interface: %w", r.source, err)
	case errors.Is(err, unix.EINVAL) && r.gateway.IsValid():
		return fmt.Errorf("check that the gateway is another station's address on this interface: %w", err)
	case r.destination.Addr().Is6() && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("IPv6 is disabled in the guest: %w", err)
	}
	return err
}

func (r route) netlink() *netlink.Route {
	bits := r.destination.Addr().BitLen()
	out := &netlink.Route{
		LinkIndex: r.index,
		Dst:       &net.IPNet{IP: r.destination.Addr().AsSlice(), Mask: net.CIDRMask(r.destination.Bits(), bits)},
		Scope:     netlink.Scope(r.scope),
		Protocol:  protocol,
		Table:     r.table,
		Type:      r.kind,
		MTU:       r.mtu,
		AdvMSS:    r.advMSS,
		Priority:  r.metric,
	}
	if r.kind == unix.RTN_LOCAL {
		out.LinkIndex, out.Scope = loIndex, netlink.SCOPE_HOST
	}
	if r.gateway.IsValid() {
		out.Gw = r.gateway.AsSlice()
	}
	if r.source.IsValid() {
		out.Src = r.source.AsSlice()
	}
	if r.onlink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	return out
}

// routes lists the routes of both families, without those of the local table, which
// are the kernel's.
func routes() (map[route]bool, error) {
	set := map[route]bool{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := consistent(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for _, found := range list {
			if found.Tos != 0 || found.Dst == nil || found.Table == unix.RT_TABLE_LOCAL {
				continue
			}
			if _, kind := routeKinds[found.Type]; kind && (found.Type != unix.RTN_LOCAL || found.LinkIndex == loIndex) {
				set[withoutHop(found)] = true
			}
			if found.Type != unix.RTN_UNICAST {
				continue
			}
			for _, hop := range hops(found) {
				set[routeFrom(found, hop)] = true
			}
		}
	}
	return set, nil
}

// withoutHop returns a route of a type that has no interface. The kernel reports lo for
// those of IPv6.
func withoutHop(r netlink.Route) route {
	read := routeFrom(r, &netlink.NexthopInfo{})
	return route{destination: read.destination, metric: read.metric, table: read.table, kind: r.Type}
}

// hops returns a route's next hops; the kernel reports IPv6 routes that differ
// only in their hops as one multipath route.
func hops(r netlink.Route) []*netlink.NexthopInfo {
	if len(r.MultiPath) > 0 {
		return r.MultiPath
	}
	return []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Flags: r.Flags}}
}

func routeFrom(r netlink.Route, hop *netlink.NexthopInfo) route {
	ones, _ := r.Dst.Mask.Size()
	destination, _ := netip.AddrFromSlice(r.Dst.IP)
	if r.Family == netlink.FAMILY_V4 { // The library returns a default route's in 16 bytes.
		destination = destination.Unmap()
	}
	gateway, _ := netip.AddrFromSlice(hop.Gw)
	source, _ := netip.AddrFromSlice(r.Src)
	return route{
		index:       hop.LinkIndex,
		destination: netip.PrefixFrom(destination, ones),
		gateway:     gateway,
		source:      source,
		scope:       uint8(r.Scope),
		onlink:      hop.Flags&unix.RTNH_F_ONLINK != 0,
		mtu:         r.MTU,
		advMSS:      r.AdvMSS,
		metric:      r.Priority,
		table:       r.Table,
	}
}
