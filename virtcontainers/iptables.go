package virtcontainers

import "context"

// IPTables returns the rules of the pod's network in the guest for IPv4, or with
// ipv6 those for IPv6, as iptables-save writes them there: at most 1 MiB, and
// whatever the guest says. A guest image without the tool is an
// errdefs.ErrNotImplemented.
func (s *Sandbox) IPTables(ctx context.Context, ipv6 bool) ([]byte, error) {
	agent, err := s.agent()
	if err != nil {
		return nil, err
	}
	return agent.IPTables(ctx, ipv6)
}

// SetIPTables gives rules, at most 1 MiB, to iptables-restore in the guest.
// Errors are as IPTables'.
func (s *Sandbox) SetIPTables(ctx context.Context, ipv6 bool, rules []byte) error {
	agent, err := s.agent()
	if err != nil {
		return err
	}
	return agent.SetIPTables(ctx, ipv6, rules)
}
