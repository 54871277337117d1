package fibrule

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// What a rule does (include/uapi/linux/fib_rules.h, FR_ACT_*).
const (
	Lookup      = 1
	jump        = 2 // FR_ACT_GOTO
	nop         = 3
	Blackhole   = 6
	Unreachable = 7
	Prohibit    = 8
)

// NoSuppression is the Suppress of a rule that uses routes of any length.
const NoSuppression = -1

// Rule is one policy rule. Its zero values match everything. It can be compared with
// ==.
type Rule struct {
	IPv6     bool
	Priority uint32
	// Source and Destination are not valid for any.
	Source, Destination netip.Prefix
	// Invert is set if the action is for what does not match.
	Invert bool
	// Mark is compared with the bits of a packet's mark that are in Mask.
	Mark, Mask uint32
	// In and Out are names of interfaces.
	In, Out string
	TOS     uint8
	// Protocol is an IP protocol's number.
	Protocol                      uint8
	SourcePorts, DestinationPorts Ports
	UIDs                          UIDs
	Action                        uint8
	// Table is where a Lookup looks.
	Table uint32
	// Suppress is the longest prefix whose routes a Lookup ignores, or
	// NoSuppression.
	Suppress int
	// Origin is who made the rule (rtnetlink(7), rtm_protocol).
	Origin uint8
}

// Ports is a range of ports, or zero for any.
type Ports struct{ First, Last uint16 }

// UIDs is a range of user ids, if it is Set.
type UIDs struct {
	Set         bool
	First, Last uint32
}

// Defaults returns the initial rules of a network namespace: three of IPv4, two of
// IPv6 (net/ipv4/fib_rules.c and net/ipv6/fib6_rules.c, *_default_rules_init).
func Defaults() []Rule {
	rule := func(ipv6 bool, priority, table uint32) Rule {
		return Rule{IPv6: ipv6, Priority: priority, Action: Lookup, Table: table, Suppress: NoSuppression, Origin: unix.RTPROT_KERNEL}
	}
	const main, last = 0x7ffe, 0x7fff
	return []Rule{
		rule(false, 0, unix.RT_TABLE_LOCAL), rule(false, main, unix.RT_TABLE_MAIN), rule(false, last, unix.RT_TABLE_DEFAULT),
		rule(true, 0, unix.RT_TABLE_LOCAL), rule(true, main, unix.RT_TABLE_MAIN),
	}
}

// From returns the rule with another origin.
func (r Rule) From(origin uint8) Rule {
	r.Origin = origin
	return r
}

// String returns the rule as ip-rule(8) writes it, without its origin.
func (r Rule) String() string {
	var b strings.Builder
	family := "IPv4"
	if r.IPv6 {
		family = "IPv6"
	}
	fmt.Fprintf(&b, "%s rule %d:", family, r.Priority)
	if r.Invert {
		b.WriteString(" not")
	}
	b.WriteString(" from " + network(r.Source))
	if r.Destination.IsValid() {
		b.WriteString(" to " + network(r.Destination))
	}
	if r.TOS != 0 {
		fmt.Fprintf(&b, " tos %#x", r.TOS)
	}
	if r.Mask != 0 {
		fmt.Fprintf(&b, " fwmark %#x/%#x", r.Mark, r.Mask)
	}
	if r.In != "" {
		b.WriteString(" iif " + r.In)
	}
	if r.Out != "" {
		b.WriteString(" oif " + r.Out)
	}
	if r.UIDs.Set {
		fmt.Fprintf(&b, " uidrange %d-%d", r.UIDs.First, r.UIDs.Last)
	}
	if r.Protocol != 0 {
		fmt.Fprintf(&b, " ipproto %d", r.Protocol)
	}
	b.WriteString(r.SourcePorts.text(" sport") + r.DestinationPorts.text(" dport") + " " + r.action())
	return b.String()
}

func network(p netip.Prefix) string {
	if !p.IsValid() {
		return "all"
	}
	return p.String()
}

func (p Ports) text(keyword string) string {
	if p == (Ports{}) {
		return ""
	}
	return fmt.Sprintf("%s %d-%d", keyword, p.First, p.Last)
}

func (r Rule) action() string {
	switch r.Action {
	case Lookup:
		if r.Suppress != NoSuppression {
			return fmt.Sprintf("lookup %d suppress_prefixlength %d", r.Table, r.Suppress)
		}
		return fmt.Sprintf("lookup %d", r.Table)
	case Blackhole:
		return "blackhole"
	case Unreachable:
		return "unreachable"
	case Prohibit:
		return "prohibit"
	case jump:
		return "goto"
	case nop:
		return "nop"
	default:
		return fmt.Sprintf("action %d", r.Action)
	}
}
