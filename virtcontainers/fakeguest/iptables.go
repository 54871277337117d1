package fakeguest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// GetIPTables implements the Guest service: it returns what was set.
func (s guestService) GetIPTables(ctx context.Context, req *api.GetIPTablesRequest) (*api.GetIPTablesResponse, error) {
	if err := s.agent.enter(ctx, "GetIPTables", req); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return &api.GetIPTablesResponse{Rules: s.agent.tables[req.GetIpv6()]}, nil
}

// SetIPTables implements the Guest service: rules end with COMMIT.
func (s guestService) SetIPTables(ctx context.Context, req *api.SetIPTablesRequest) (*api.SetIPTablesResponse, error) {
	if err := s.agent.enter(ctx, "SetIPTables", req); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if size := len(req.GetRules()); size > api.MaxIPTables {
		return nil, errgrpc.ToGRPC(fmt.Errorf("rules of %d bytes: %w", size, errdefs.ErrInvalidArgument))
	}
	if !bytes.HasSuffix(req.GetRules(), []byte("COMMIT\n")) {
		return nil, errgrpc.ToGRPC(fmt.Errorf("%w: COMMIT expected", errdefs.ErrUnknown))
	}
	s.agent.SetTables(req.GetIpv6(), req.GetRules())
	return &api.SetIPTablesResponse{}, nil
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
