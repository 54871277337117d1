package network

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// policy is a namespace's policy rules, in the order in which they are used.
type policy struct {
	rules []foundRule
	// read4 and read6 are set if the kernel has rules of that family.
	read4, read6 bool
}

// foundRule is a rule; odd names what a guest cannot have of it.
type foundRule struct {
	fibrule.Rule
	odd string
}

// read reads the rules. The calling thread must be in the namespace.
func (p *policy) read() error {
	for _, family := range []struct {
		number byte
		read   *bool
	}{{unix.AF_INET, &p.read4}, {unix.AF_INET6, &p.read6}} {
		req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
		req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family.number}})
		messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without policy routing, or without IPv6
		}
		if err != nil {
			return fmt.Errorf("list policy rules: %w", err)
		}
		*family.read = true
		for _, m := range messages {
			rule, odd, err := fibrule.Decode(m)
			if err != nil {
				return fmt.Errorf("list policy rules: %w", err)
			}
			p.rules = append(p.rules, foundRule{rule, odd})
		}
	}
	return nil
}

// describe returns the rules that a guest with these interfaces gets, and which of
// the rules with which a namespace begins it is not to have. notes say what was
// omitted, and why.
func (p *policy) describe(interfaces []*api.Interface) (rules, absent []*api.Rule, notes []string) {
	names := map[string]bool{"": true, "lo": true}
	for _, i := range interfaces {
		names[i.GetName()] = true
	}
	begin := fibrule.Defaults()
	absentRules := slices.DeleteFunc(fibrule.Defaults(), func(r fibrule.Rule) bool { return r.IPv6 && !p.read6 || !r.IPv6 && !p.read4 })
	given := make(map[fibrule.Rule]bool)
	for _, r := range p.rules {
		plain := r.From(unix.RTPROT_KERNEL)
		switch {
		case r.odd == "" && slices.Contains(begin, plain):
			absentRules = slices.DeleteFunc(absentRules, func(other fibrule.Rule) bool { return other == plain })
		case r.odd != "":
			notes = append(notes, fmt.Sprintf("%s: with %s, which a guest does not get", r, r.odd))
		case r.TOS&congestion != 0:
			notes = append(notes, fmt.Sprintf("%s: with bits of the TOS that are for congestion, which a guest does not get", r))
		case !names[r.In] || !names[r.Out]:
			notes = append(notes, fmt.Sprintf("%s: names a link without a NIC", r))
		case !given[plain]:
			given[plain] = true
			rules = append(rules, described(plain))
		}
	}
	for _, r := range absentRules {
		absent = append(absent, described(r))
	}
	return rules, absent, notes
}

// congestion has the bits of a TOS that newer kernels do not compare (RFC 3168,
// section 5).
const congestion = 3

// described converts a rule for the guest.
func described(r fibrule.Rule) *api.Rule {
	made := &api.Rule{
		Ipv6: r.IPv6, Priority: r.Priority, Invert: r.Invert, Mark: r.Mark, Mask: r.Mask, InInterface: r.In, OutInterface: r.Out,
		Tos: uint32(r.TOS), Protocol: uint32(r.Protocol), Action: uint32(r.Action), Table: r.Table,
		SourcePorts: portsOf(r.SourcePorts), DestinationPorts: portsOf(r.DestinationPorts),
	}
	if r.Source.IsValid() {
		made.Source = r.Source.String()
	}
	if r.Destination.IsValid() {
		made.Destination = r.Destination.String()
	}
	if r.UIDs.Set {
		made.Uids = &api.Range{First: r.UIDs.First, Last: r.UIDs.Last}
	}
	if r.Suppress != fibrule.NoSuppression {
		made.SuppressPrefixLength = proto.Uint32(uint32(r.Suppress))
	}
	return made
}

func portsOf(p fibrule.Ports) *api.Range {
	if p == (fibrule.Ports{}) {
		return nil
	}
	return &api.Range{First: uint32(p.First), Last: uint32(p.Last)}
}
