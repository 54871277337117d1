package fakeguest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// GetIPTables implements the Guest service: it returns what was set.
func (s guestService) GetIPTables(ctx context.Context, req *api.GetIPTablesRequest) (*api.GetIPTablesResponse, error) {
	return answerOpen(ctx, s.agent, "GetIPTables", req, func() (*api.GetIPTablesResponse, error) {
		return &api.GetIPTablesResponse{Rules: s.agent.tables[req.GetIpv6()]}, nil
	})
}

// SetIPTables implements the Guest service: rules end with COMMIT.
func (s guestService) SetIPTables(ctx context.Context, req *api.SetIPTablesRequest) (*api.SetIPTablesResponse, error) {
	return answer(ctx, s.agent, "SetIPTables", req, func() (*api.SetIPTablesResponse, error) {
		return &api.SetIPTablesResponse{}, s.agent.restoreTables(req)
	})
}

func (a *Agent) restoreTables(req *api.SetIPTablesRequest) error {
	a.mu.Lock()
	err := a.checkOpen()
	a.mu.Unlock()
	if err != nil {
		return fmt.Errorf("set iptables: %w", err)
	}
	if size := len(req.GetRules()); size > api.MaxIPTables {
		return fmt.Errorf("rules of %d bytes: %w", size, errdefs.ErrInvalidArgument)
	}
	if !bytes.HasSuffix(req.GetRules(), []byte("COMMIT\n")) {
		return fmt.Errorf("%w: COMMIT expected", errdefs.ErrUnknown)
	}
	a.SetTables(req.GetIpv6(), req.GetRules())
	return nil
}

// SetTables sets what the agent answers to GetIPTables.
func (a *Agent) SetTables(ipv6 bool, rules []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tables == nil {
		a.tables = make(map[bool][]byte)
	}
	a.tables[ipv6] = rules
}
