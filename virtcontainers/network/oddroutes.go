package network

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// routeKey is what the netlink library knows of any route.
type routeKey struct {
	to      netip.Prefix
	gateway netip.Addr
	// link is an index, and 0 for a route over several hops.
	link, metric int
	// table is 0 for the main one.
	table int
}

func keyOf(r netlink.Route) routeKey {
	k := routeKey{to: prefixOf(r.Dst).Masked(), link: r.LinkIndex, metric: r.Priority, table: tableOf(r.Table)}
	if r.Gw != nil {
		k.gateway = addrOf(r.Gw, r.Family)
	}
	return k
}

// readOddRoutes finds the routes with more than the netlink library reads, which
// looks to it like a usual route: with any encapsulation, or for packets from one
// network only ("from", IPv6). The calling thread must be in the namespace.
func (v *view) readOddRoutes() error {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.AddData(&nl.RtMsg{})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	usual := make(map[routeKey]bool)
	v.oddRoutes = make(map[routeKey]bool)
	for _, m := range messages {
		key, odd, ok := readRoute(m)
		switch {
		case !ok:
		case odd:
			v.oddRoutes[key] = true
		default:
			usual[key] = true
		}
	}
	for key := range usual {
		delete(v.oddRoutes, key) // the guest gets the usual one of the two
	}
	return nil
}

// readRoute reads one message (rtnetlink(7), RTM_NEWROUTE).
func readRoute(message []byte) (key routeKey, odd, ok bool) {
	if len(message) < unix.SizeofRtMsg {
		return key, false, false
	}
	msg := nl.DeserializeRtMsg(message)
	attrs, err := nl.ParseRouteAttrAsMap(message[msg.Len():])
	if err != nil {
		return key, false, false
	}
	to := netip.IPv4Unspecified()
	switch msg.Family {
	case unix.AF_INET:
	case unix.AF_INET6:
		to = netip.IPv6Unspecified()
	default:
		return key, false, false
	}
	if dst, given := attrs[unix.RTA_DST]; given {
		to, _ = netip.AddrFromSlice(dst.Value)
	}
	key.to = netip.PrefixFrom(to, int(msg.Dst_len)).Masked()
	key.gateway, _ = netip.AddrFromSlice(attrs[unix.RTA_GATEWAY].Value)
	key.link, key.metric = number(attrs[unix.RTA_OIF].Value), number(attrs[unix.RTA_PRIORITY].Value)
	key.table = tableOf(int(msg.Table))
	if table, given := attrs[unix.RTA_TABLE]; given {
		key.table = tableOf(number(table.Value))
	}
	_, encapsulated := attrs[unix.RTA_ENCAP_TYPE]
	return key, encapsulated || msg.Src_len > 0 || hopsAreOdd(attrs[unix.RTA_MULTIPATH].Value), true
}

func number(value []byte) int {
	if len(value) < 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(value))
}

// hopsAreOdd reports whether a hop of several has an encapsulation
// (include/uapi/linux/rtnetlink.h, struct rtnexthop).
func hopsAreOdd(hops []byte) bool {
	for len(hops) >= unix.SizeofRtNexthop {
		size := int(nl.DeserializeRtNexthop(hops).RtNexthop.Len)
		if size < unix.SizeofRtNexthop || size > len(hops) {
			return false
		}
		attrs, err := nl.ParseRouteAttrAsMap(hops[unix.SizeofRtNexthop:size])
		if _, encapsulated := attrs[unix.RTA_ENCAP_TYPE]; err == nil && encapsulated {
			return true
		}
		hops = hops[min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(hops)):]
	}
	return false
}
