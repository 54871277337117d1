package task

import (
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/shim/rpc"
)

// Register makes the server answer the task API, in both its versions, with
// errors as gRPC statuses.
func Register(server *ttrpc.Server, s *Service) {
	desc := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      rpc.Method(s.State),
		"Create":     rpc.Method(s.Create),
		"Start":      rpc.Method(s.Start),
		"Delete":     rpc.Method(s.Delete),
		"Pids":       rpc.Method(s.Pids),
		"Pause":      rpc.Method(s.Pause),
		"Resume":     rpc.Method(s.Resume),
		"Checkpoint": rpc.Method(s.Checkpoint),
		"Kill":       rpc.Method(s.Kill),
		"Exec":       rpc.Method(s.Exec),
		"ResizePty":  rpc.Method(s.ResizePty),
		"CloseIO":    rpc.Method(s.CloseIO),
		"Update":     rpc.Method(s.Update),
		"Wait":       rpc.Method(s.Wait),
		"Stats":      rpc.Method(s.Stats),
		"Connect":    rpc.Method(s.Connect),
		"Shutdown":   rpc.Method(s.Shutdown),
	}}
	for _, name := range []string{"containerd.task.v2.Task", "containerd.task.v3.Task"} {
		server.RegisterService(name, desc)
	}
}

var _ task.TTRPCTaskService = (*Service)(nil)
