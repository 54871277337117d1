package virtcontainers

import "context"

// IPTables returns the guest's rules for IPv4, or with ipv6 those for IPv6, as
// iptables-save writes them there. The text is at most 1 MiB and not trustworthy. It
// fails with errdefs.ErrNotImplemented if the guest image lacks the tool.
func (s *Sandbox) IPTables(ctx context.Context, ipv6 bool) ([]byte, error) {
	agent, err := s.agent()
	if err != nil {
		return nil, err
	}
	return agent.IPTables(ctx, ipv6)
}

// SetIPTables passes rules, at most 1 MiB, to iptables-restore in the guest. Its
// errors are those of IPTables.
func (s *Sandbox) SetIPTables(ctx context.Context, ipv6 bool, rules []byte) error {
	agent, err := s.agent()
	if err != nil {
		return err
	}
	return agent.SetIPTables(ctx, ipv6, rules)
}
