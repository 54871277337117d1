package service

import (
	"errors"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// statusOf returns the gRPC status of a call that mounts storages: its details
// name the one that could not be mounted.
func statusOf(err error) error {
	var failed *guest.StorageError
	st, ok := status.FromError(errgrpc.ToGRPC(err))
	if !ok || !errors.As(err, &failed) {
		return errgrpc.ToGRPC(err)
	}
	detailed, detailErr := st.WithDetails(&api.FailedStorage{Target: failed.Target})
	if detailErr != nil {
		return st.Err() // the message names it, too
	}
	return detailed.Err()
}
