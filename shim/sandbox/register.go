package sandbox

import (
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/shim/rpc"
)

// Register makes the server answer the sandbox API, with errors as gRPC
// statuses.
func Register(server *ttrpc.Server, s *Service) {
	server.RegisterService("containerd.runtime.sandbox.v1.Sandbox", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"CreateSandbox":   rpc.Method(s.CreateSandbox),
		"StartSandbox":    rpc.Method(s.StartSandbox),
		"Platform":        rpc.Method(s.Platform),
		"StopSandbox":     rpc.Method(s.StopSandbox),
		"WaitSandbox":     rpc.Method(s.WaitSandbox),
		"SandboxStatus":   rpc.Method(s.SandboxStatus),
		"PingSandbox":     rpc.Method(s.PingSandbox),
		"ShutdownSandbox": rpc.Method(s.ShutdownSandbox),
		"SandboxMetrics":  rpc.Method(s.SandboxMetrics),
		"UpdateSandbox":   rpc.Method(s.UpdateSandbox),
	}})
}
