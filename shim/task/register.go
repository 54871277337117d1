package task

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// Register makes the server answer the task API, in both its versions, with
// errors as gRPC statuses.
func Register(server *ttrpc.Server, s *Service) {
	desc := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      method(s.State),
		"Create":     method(s.Create),
		"Start":      method(s.Start),
		"Delete":     method(s.Delete),
		"Pids":       method(s.Pids),
		"Pause":      method(s.Pause),
		"Resume":     method(s.Resume),
		"Checkpoint": method(s.Checkpoint),
		"Kill":       method(s.Kill),
		"Exec":       method(s.Exec),
		"ResizePty":  method(s.ResizePty),
		"CloseIO":    method(s.CloseIO),
		"Update":     method(s.Update),
		"Wait":       method(s.Wait),
		"Stats":      method(s.Stats),
		"Connect":    method(s.Connect),
		"Shutdown":   method(s.Shutdown),
	}}
	for _, name := range []string{"containerd.task.v2.Task", "containerd.task.v3.Task"} {
		server.RegisterService(name, desc)
	}
}

// method adapts one call: the request type's zero value is decoded into.
func method[Req any, PReq interface {
	*Req
	proto.Message
}, Resp proto.Message](call func(context.Context, PReq) (Resp, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := PReq(new(Req))
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		resp, err := call(ctx, req)
		if err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
		return resp, nil
	}
}

var _ task.TTRPCTaskService = (*Service)(nil)
