package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/iptables"
)

// tables saves and restores the rules of iptables or, with ipv6, of ip6tables.
type tables interface {
	Save(ctx context.Context, ipv6 bool) ([]byte, error)
	Restore(ctx context.Context, ipv6 bool, rules []byte) error
}

var _ tables = (*iptables.Tools)(nil)

// GetIPTables implements the Guest service.
func (s guestService) GetIPTables(ctx context.Context, req *api.GetIPTablesRequest) (*api.GetIPTablesResponse, error) {
	if err := s.pod.checkOpen(); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("get iptables: %w", err))
	}
	rules, err := s.pod.config.Tables.Save(ctx, req.GetIpv6())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.GetIPTablesResponse{Rules: rules}, nil
}

// SetIPTables implements the Guest service.
func (s guestService) SetIPTables(ctx context.Context, req *api.SetIPTablesRequest) (*api.SetIPTablesResponse, error) {
	if err := s.pod.checkOpen(); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("set iptables: %w", err))
	}
	if err := s.pod.config.Tables.Restore(ctx, req.GetIpv6(), req.GetRules()); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.SetIPTablesResponse{}, nil
}
