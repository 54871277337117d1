package service

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// AddStorages implements the Guest service.
func (s guestService) AddStorages(context.Context, *api.AddStoragesRequest) (*api.AddStoragesResponse, error) {
	return nil, errgrpc.ToGRPC(errdefs.ErrNotImplemented)
}

// ChangeFiles implements the Guest service.
func (s guestService) ChangeFiles(context.Context, *api.ChangeFilesRequest) (*api.ChangeFilesResponse, error) {
	return nil, errgrpc.ToGRPC(errdefs.ErrNotImplemented)
}
