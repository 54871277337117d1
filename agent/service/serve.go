package service

import (
	"context"
	"errors"
	"fmt"
	"net"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/katabox/katabox/agent/api"
)

// Serve answers the host's calls on l until ctx is done or l fails. powerOff
// ends the machine.
func Serve(ctx context.Context, l net.Listener, pod *Pod, times BootTimes, powerOff func() error) error {
	server, err := ttrpc.NewServer(ttrpc.WithUnaryServerInterceptor(validText))
	if err != nil {
		return fmt.Errorf("make ttrpc server: %w", err)
	}
	taskapi.RegisterTTRPCTaskService(server, taskService{pod})
	api.RegisterGuestService(server, guestService{pod: pod, times: times, powerOff: powerOff})
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err = server.Serve(ctx, l)
	if errors.Is(err, ttrpc.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve calls: %w", err)
}
