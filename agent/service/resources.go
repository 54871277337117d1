package service

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// SetResources implements the Guest service.
func (s guestService) SetResources(context.Context, *api.SetResourcesRequest) (*api.SetResourcesResponse, error) {
	return nil, errgrpc.ToGRPC(errdefs.ErrNotImplemented)
}
