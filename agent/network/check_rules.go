package network

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

// loName is an interface's name for packets of the guest's processes (ip-rule(8)).
const loName = "lo"

func (c *checker) rules(req *api.SetNetworkRequest) error {
	if err := tooMany("rules", len(req.GetRules()), api.MaxRules); err != nil {
		return err
	}
	seen := map[fibrule.Rule]bool{}
	for i, in := range req.GetRules() {
		r, err := c.rule(fmt.Sprintf("rules[%d]", i), in)
		if err != nil {
			return err
		}
		if !seen[r] {
			seen[r] = true
			c.state.rules = append(c.state.rules, r)
		}
	}
	return nil
}

// absentRules reads which of the kernel's first rules are to go.
func (c *checker) absentRules(req *api.SetNetworkRequest) error {
	defaults := fibrule.Defaults()
	if err := tooMany("absent_rules", len(req.GetAbsentRules()), len(defaults)); err != nil {
		return err
	}
	for i, in := range req.GetAbsentRules() {
		field := fmt.Sprintf("absent_rules[%d]", i)
		r, err := c.rule(field, in)
		if err != nil {
			return err
		}
		r = r.From(unix.RTPROT_KERNEL)
		if !slices.Contains(defaults, r) || slices.Contains(c.state.absent, r) {
			return wrong(field, r.String(), "a rule with which a network namespace begins, and once")
		}
		c.state.absent = append(c.state.absent, r)
	}
	return nil
}

func (c *checker) rule(field string, in *api.Rule) (fibrule.Rule, error) {
	r := fibrule.Rule{
		IPv6: in.GetIpv6(), Priority: in.GetPriority(), Invert: in.GetInvert(), Mark: in.GetMark(), Mask: in.GetMask(),
		In: in.GetInInterface(), Out: in.GetOutInterface(), TOS: uint8(in.GetTos()), Protocol: uint8(in.GetProtocol()),
		Suppress: fibrule.NoSuppression, Origin: protocol,
	}
	for _, step := range []func(string, *api.Rule, *fibrule.Rule) error{
		checkNetworks, c.checkInterfaces, checkRuleNumbers, checkRanges, checkAction,
	} {
		if err := step(field, in, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func checkNetworks(field string, in *api.Rule, r *fibrule.Rule) error {
	for _, network := range []struct {
		field, text string
		to          *netip.Prefix
	}{
		{".source", in.GetSource(), &r.Source}, {".destination", in.GetDestination(), &r.Destination},
	} {
		if network.text == "" {
			continue
		}
		p, err := netip.ParsePrefix(network.text)
		if err != nil || p != p.Masked() || p.Bits() == 0 || p.Addr().Is4In6() || p.Addr().Is6() != r.IPv6 {
			return wrong(field+network.field, network.text, `a network of the rule's family without host bits, as "10.0.0.0/8"`)
		}
		*network.to = p
	}
	return nil
}

func (c *checker) checkInterfaces(field string, _ *api.Rule, r *fibrule.Rule) error {
	for _, name := range []struct{ field, is string }{{".in_interface", r.In}, {".out_interface", r.Out}} {
		if _, ok := c.names[name.is]; name.is != "" && name.is != loName && !ok {
			return wrong(field+name.field, name.is, "the name of an interface in the request, or lo")
		}
	}
	return nil
}

// checkRuleNumbers accepts a TOS without the two bits for congestion, which are not
// compared (net/ipv4/fib_rules.c, fib4_rule_configure).
func checkRuleNumbers(field string, in *api.Rule, r *fibrule.Rule) error {
	const congestion = 3
	switch {
	case in.GetTos() > 1<<8-1 || in.GetTos()&congestion != 0:
		return fmt.Errorf("%s.tos is %#x, want at most 0xfc, without the lowest two bits: %w", field, in.GetTos(), errdefs.ErrInvalidArgument)
	case in.GetProtocol() > 1<<8-1:
		return fmt.Errorf("%s.protocol is %d, want at most 255: %w", field, in.GetProtocol(), errdefs.ErrInvalidArgument)
	case r.Mark&^r.Mask != 0:
		return fmt.Errorf("%s.mark is %#x, want no bits that are not in mask %#x: %w", field, r.Mark, r.Mask, errdefs.ErrInvalidArgument)
	}
	return nil
}

func checkRanges(field string, in *api.Rule, r *fibrule.Rule) error {
	for _, ports := range []struct {
		field string
		in    *api.Range
		to    *fibrule.Ports
	}{
		{".source_ports", in.GetSourcePorts(), &r.SourcePorts}, {".destination_ports", in.GetDestinationPorts(), &r.DestinationPorts},
	} {
		if ports.in == nil {
			continue
		}
		first, last := ports.in.GetFirst(), ports.in.GetLast()
		if first == 0 || first > last || last >= 1<<16-1 { // include/net/fib_rules.h, fib_rule_port_range_valid
			return wrong(field+ports.field, fmt.Sprintf("%d-%d", first, last), "a range of ports")
		}
		*ports.to = fibrule.Ports{First: uint16(first), Last: uint16(last)}
	}
	if uids := in.GetUids(); uids != nil {
		if uids.GetFirst() > uids.GetLast() || uids.GetLast() == 1<<32-1 { // which is no user id
			return wrong(field+".uids", fmt.Sprintf("%d-%d", uids.GetFirst(), uids.GetLast()), "a range of user ids")
		}
		r.UIDs = fibrule.UIDs{Set: true, First: uids.GetFirst(), Last: uids.GetLast()}
	}
	return nil
}

func checkAction(field string, in *api.Rule, r *fibrule.Rule) error {
	switch in.GetAction() {
	case fibrule.Blackhole, fibrule.Unreachable, fibrule.Prohibit:
		if in.GetTable() != 0 || in.SuppressPrefixLength != nil {
			return fmt.Errorf("%s has a table, want one only for a lookup: %w", field, errdefs.ErrInvalidArgument)
		}
	case fibrule.Lookup:
		if in.GetTable() == 0 {
			return fmt.Errorf("%s.table is 0, want a table: %w", field, errdefs.ErrInvalidArgument)
		}
	default:
		return fmt.Errorf("%s.action is %d, want a lookup, blackhole, unreachable or prohibit: %w", field, in.GetAction(), errdefs.ErrInvalidArgument)
	}
	r.Action, r.Table = uint8(in.GetAction()), in.GetTable()
	if in.SuppressPrefixLength == nil {
		return nil
	}
	most := netip.IPv4Unspecified().BitLen()
	if r.IPv6 {
		most = netip.IPv6Unspecified().BitLen()
	}
	if in.GetSuppressPrefixLength() > uint32(most) {
		return fmt.Errorf("%s.suppress_prefix_length is %d, want at most %d: %w", field, in.GetSuppressPrefixLength(), most, errdefs.ErrInvalidArgument)
	}
	r.Suppress = int(in.GetSuppressPrefixLength())
	return nil
}
