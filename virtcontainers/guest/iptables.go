package guest

import (
	"context"
	"fmt"

	"github.com/katabox/katabox/agent/api"
)

// MaxIPTables is how many bytes of rules a guest returns or is given at most.
const MaxIPTables = api.MaxIPTables

// IPTables returns the rules of the guest's network for IPv4, or with ipv6 those
// for IPv6: any bytes, at most MaxIPTables. A guest image without the tool is
// an errdefs.ErrNotImplemented.
func (c *Client) IPTables(ctx context.Context, ipv6 bool) ([]byte, error) {
	resp, err := c.guest().GetIPTables(ctx, &api.GetIPTablesRequest{Ipv6: ipv6})
	if err != nil {
		return nil, fmt.Errorf("get iptables of the guest: %w", Err(err))
	}
	if size := len(resp.GetRules()); size > MaxIPTables {
		return nil, fmt.Errorf("get iptables of the guest: the answer has %d bytes, want at most %d", size, MaxIPTables)
	}
	return resp.GetRules(), nil
}

// SetIPTables gives rules to the guest's iptables-restore, at most
// MaxIPTables bytes. Errors are as IPTables'.
func (c *Client) SetIPTables(ctx context.Context, ipv6 bool, rules []byte) error {
	if _, err := c.guest().SetIPTables(ctx, &api.SetIPTablesRequest{Ipv6: ipv6, Rules: rules}); err != nil {
		return fmt.Errorf("set iptables of the guest: %w", Err(err))
	}
	return nil
}
