package fakeguest

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Calls of the Task service that have no effect here: a Hook may answer them
// with an error.

// nothing answers a call about a container that exists.
func (s taskService) nothing(ctx context.Context, method, id string, req proto.Message) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, method, req, func() (*emptypb.Empty, error) {
		_, _, err := s.agent.find(id, "")
		return &emptypb.Empty{}, err
	})
}

// none says that a call is not implemented.
func none[Resp any](ctx context.Context, a *Agent, method string, req proto.Message) (Resp, error) {
	return answer(ctx, a, method, req, func() (resp Resp, err error) { return resp, errdefs.ErrNotImplemented })
}

// Checkpoint implements the Task service.
func (s taskService) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return none[*emptypb.Empty](ctx, s.agent, "Checkpoint", r)
}

// Update implements the Task service.
func (s taskService) Update(ctx context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	return s.nothing(ctx, "Update", r.ID, r)
}

// Stats implements the Task service.
func (s taskService) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	return answer(ctx, s.agent, "Stats", r, func() (*task.StatsResponse, error) {
		_, _, err := s.agent.find(r.ID, "")
		return &task.StatsResponse{Stats: &anypb.Any{TypeUrl: "io.containerd.cgroups.v2.Metrics", Value: s.agent.Metrics()}}, err
	})
}

// Connect implements the Task service.
func (s taskService) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	return none[*task.ConnectResponse](ctx, s.agent, "Connect", r)
}

// Shutdown implements the Task service.
func (s taskService) Shutdown(ctx context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	return none[*emptypb.Empty](ctx, s.agent, "Shutdown", r)
}
