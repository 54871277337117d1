package service

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// VolumeStats implements the Guest service.
func (s guestService) VolumeStats(_ context.Context, req *api.VolumeStatsRequest) (*api.VolumeStatsResponse, error) {
	if err := s.pod.checkOpen(); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("inspect volume: %w", err))
	}
	stats, err := s.pod.disks.VolumeStats(req.GetTarget())
	return stats, errgrpc.ToGRPC(err)
}

// GrowVolume implements the Guest service.
func (s guestService) GrowVolume(ctx context.Context, req *api.GrowVolumeRequest) (*api.GrowVolumeResponse, error) {
	if err := s.pod.checkOpen(); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("grow volume: %w", err))
	}
	if err := s.pod.disks.GrowVolume(ctx, req.GetTarget(), req.GetDiskBytes()); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &api.GrowVolumeResponse{}, nil
}
