package client

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
)

// taskService is the name of the task API's service (api/runtime/task/v3).
const taskService = "containerd.task.v3.Task"

// BeginWait is Wait in two parts. It sends the request: the shim reads it before any
// later call of this connection, and before the connection's end, so that it has an
// owner for the process from then on (engine.Policy.WaiterOwnsProcess). answer waits for
// the process's end, or until ctx ends; it is called once.
func (s *Shim) BeginWait(ctx context.Context, r *task.WaitRequest) (answer func() (*task.WaitResponse, error), err error) {
	// The answer to a call without streams is a stream of one message.
	stream, err := s.client.NewStream(ctx, &ttrpc.StreamDesc{}, taskService, "Wait", r)
	if err != nil {
		return nil, callError(ctx, "Wait", err)
	}
	return func() (*task.WaitResponse, error) {
		resp := new(task.WaitResponse)
		err := stream.RecvMsg(resp)
		if err == nil {
			return resp, nil
		}
		if _, answered := status.FromError(err); answered {
			return nil, errgrpc.ToNative(err)
		}
		return nil, callError(ctx, "Wait", err)
	}, nil
}
