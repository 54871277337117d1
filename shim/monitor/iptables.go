package monitor

import (
	"context"
	"fmt"
	"net/http"

	"github.com/katabox/katabox/shim/management"
)

// IPTables returns the rules of the pod's guest for IPv4, or with ipv6 those for
// IPv6, as iptables-save writes them there: whatever the guest says, at most
// guest.MaxIPTables bytes. It wakes a pod that hibernates, and takes
// management.IPTablesTimeout at most once the pod is awake.
func (p Pod) IPTables(ctx context.Context, ipv6 bool) ([]byte, error) {
	rules, err := p.iptables(ctx, http.MethodGet, ipv6, nil)
	if err != nil {
		return nil, fmt.Errorf("get iptables of pod %s: %w", p.ID, err)
	}
	return rules, nil
}

// SetIPTables gives rules to iptables-restore in the pod's guest, at most
// guest.MaxIPTables bytes. It wakes and takes as much time as IPTables.
func (p Pod) SetIPTables(ctx context.Context, ipv6 bool, rules []byte) error {
	if _, err := p.iptables(ctx, http.MethodPut, ipv6, rules); err != nil {
		return fmt.Errorf("set iptables of pod %s: %w", p.ID, err)
	}
	return nil
}

func (p Pod) iptables(ctx context.Context, method string, ipv6 bool, rules []byte) ([]byte, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, management.IPTablesTimeout+askTimeout)
	defer cancel()
	path := management.IPTablesPath
	if ipv6 {
		path = management.IP6TablesPath
	}
	return p.request(ctx, method, path, rules)
}
