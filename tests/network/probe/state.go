package main

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// printState writes what a process sees of its network, as sorted lines that
// are equal when two networks are:
//
//	addr eth0 10.88.0.2/24
//	link eth0 mac 02:00:00:00:00:01 mtu 1500 up
//	neigh eth0 10.88.0.9 02:00:00:00:00:09
//	route 0.0.0.0/0 dev eth0 via 10.88.0.1
//	route 0.0.0.0/0 dev net1 via 10.89.0.1 table 100
//	rule 100 from 10.89.0.2/32 table 100
//
// Links are those with a hardware address, without the taps that connect a link
// to a VM; routes are those of every table but the local one; neighbours the permanent
// ones.
// Indexes, queueing and the routes' protocols are left out.
func printState(out io.Writer) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	var lines []string
	for _, l := range links {
		a := l.Attrs()
		if madeByRuntime(a.Name) || a.Flags&(net.FlagLoopback|net.FlagUp) == 0 {
			continue
		}
		names[a.Index] = a.Name
		if len(a.HardwareAddr) == 6 && a.Flags&net.FlagLoopback == 0 {
			lines = append(lines, linkLine(a))
		}
	}
	for _, list := range []func(map[int]string) ([]string, error){addresses, routes, neighbours, rules} {
		more, err := list(names)
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	slices.Sort(lines)
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// madeByRuntime reports whether a runtime has put the link beside a pod's own.
// The names are Kata Containers'.
func madeByRuntime(name string) bool {
	return strings.HasPrefix(name, "tap") && (strings.HasSuffix(name, "_kata") || strings.HasSuffix(name, "_k"))
}

func linkLine(a *netlink.LinkAttrs) string {
	line := fmt.Sprintf("link %s mac %s mtu %d", a.Name, a.HardwareAddr, a.MTU)
	if a.Flags&net.FlagUp != 0 {
		line += " up"
	}
	if a.RawFlags&unix.IFF_NOARP != 0 {
		line += " noarp"
	}
	return line
}

func addresses(names map[int]string) ([]string, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var lines []string
	for _, a := range list {
		name, ok := names[a.LinkIndex]
		if !ok {
			continue
		}
		line := fmt.Sprintf("addr %s %s", name, a.IPNet)
		if a.Peer != nil && !a.Peer.IP.Equal(a.IP) {
			line += " peer " + a.Peer.String()
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func routes(names map[int]string) ([]string, error) {
	var lines []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			switch name, ok := names[r.LinkIndex]; {
			case r.Table == unix.RT_TABLE_LOCAL:
			case r.Type != unix.RTN_UNICAST: // the kernel reports a link only for some
				lines = append(lines, fmt.Sprintf("type %d ", r.Type)+routeLine(r, "any"))
			case ok:
				lines = append(lines, routeLine(r, name))
			}
		}
	}
	return lines, nil
}

func routeLine(r netlink.Route, name string) string {
	line := fmt.Sprintf("route %s dev %s", r.Dst, name)
	add := func(given bool, format string, value any) {
		if given {
			line += fmt.Sprintf(" "+format, value)
		}
	}
	add(r.Gw != nil, "via %s", r.Gw)
	add(r.Src != nil, "src %s", r.Src)
	add(r.Scope != netlink.SCOPE_UNIVERSE, "scope %s", r.Scope)
	add(r.Priority != 0, "metric %d", r.Priority)
	add(r.MTU != 0, "mtu %d", r.MTU)
	add(r.AdvMSS != 0, "advmss %d", r.AdvMSS)
	add(r.Flags&unix.RTNH_F_ONLINK != 0, "%s", "onlink")
	add(r.Table != unix.RT_TABLE_MAIN, "table %d", r.Table)
	return line
}

func rules(map[int]string) ([]string, error) {
	var lines []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RuleList(family)
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, r := range list {
			lines = append(lines, ruleLine(r))
		}
	}
	return lines, nil
}

func ruleLine(r netlink.Rule) string {
	line := fmt.Sprintf("rule %d", r.Priority)
	add := func(given bool, format string, value any) {
		if given {
			line += fmt.Sprintf(" "+format, value)
		}
	}
	add(r.Family == netlink.FAMILY_V6, "%s", "v6")
	add(r.Invert, "%s", "not")
	add(r.Src != nil, "from %s", r.Src)
	add(r.Dst != nil, "to %s", r.Dst)
	add(r.Mark != 0, "mark %#x", r.Mark)
	add(r.IifName != "", "iif %s", r.IifName)
	add(r.OifName != "", "oif %s", r.OifName)
	add(r.IPProto != 0, "proto %d", r.IPProto)
	add(r.Dport != nil, "dport %v", r.Dport)
	add(r.UIDRange != nil, "uids %v", r.UIDRange)
	add(r.SuppressPrefixlen >= 0, "suppress %d", r.SuppressPrefixlen)
	add(r.Table != 0, "table %d", r.Table)
	return line
}

func neighbours(names map[int]string) ([]string, error) {
	list, err := netlink.NeighListExecute(netlink.Ndmsg{State: netlink.NUD_PERMANENT})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	slices.SortFunc(list, func(a, b netlink.Neigh) int { return cmp.Compare(a.IP.String(), b.IP.String()) })
	var lines []string
	for _, n := range list {
		if name, ok := names[n.LinkIndex]; ok && n.State&netlink.NUD_PERMANENT != 0 && n.IP.To16() != nil && !n.IP.IsMulticast() {
			lines = append(lines, fmt.Sprintf("neigh %s %s %s", name, n.IP, n.HardwareAddr))
		}
	}
	return lines, nil
}
