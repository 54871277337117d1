package service

import (
	"context"
	"encoding/json"
	"fmt"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// taskService is containerd's Task API over a Pod: it decodes, calls and
// encodes.
type taskService struct{ pod *Pod }

var _ taskapi.TTRPCTaskService = taskService{}

var empty = &emptypb.Empty{}

// Create implements the Task service.
func (s taskService) Create(ctx context.Context, req *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	pid, err := s.pod.create(ctx, req)
	if err != nil {
		return nil, statusOf(err)
	}
	return &taskapi.CreateTaskResponse{Pid: pid}, nil
}

// Start implements the Task service.
func (s taskService) Start(ctx context.Context, req *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	pid, err := s.pod.start(ctx, req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &taskapi.StartResponse{Pid: pid}, nil
}

// Exec implements the Task service.
func (s taskService) Exec(_ context.Context, req *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	return empty, errgrpc.ToGRPC(s.pod.addExec(req))
}

// Delete implements the Task service.
func (s taskService) Delete(ctx context.Context, req *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	resp, err := s.pod.delete(ctx, req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return resp, nil
}

// Kill implements the Task service.
func (s taskService) Kill(_ context.Context, req *taskapi.KillRequest) (*emptypb.Empty, error) {
	return empty, errgrpc.ToGRPC(s.pod.kill(req))
}

// Wait implements the Task service.
func (s taskService) Wait(ctx context.Context, req *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	_, proc, err := s.pod.process(req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	exit, err := proc.wait(ctx)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &taskapi.WaitResponse{ExitStatus: exit.Status, ExitedAt: timestamppb.New(exit.At)}, nil
}

// State implements the Task service.
func (s taskService) State(_ context.Context, req *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	_, proc, err := s.pod.process(req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	resp := proc.deleted()
	return &taskapi.StateResponse{
		ID: req.GetID(), ExecID: req.GetExecID(),
		Pid:        resp.GetPid(),
		Status:     proc.status(),
		Terminal:   proc.stdio.Terminal(),
		ExitStatus: resp.GetExitStatus(),
		ExitedAt:   resp.GetExitedAt(),
	}, nil
}

// Pids implements the Task service.
func (s taskService) Pids(_ context.Context, req *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	processes, err := s.pod.pids(req.GetID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &taskapi.PidsResponse{Processes: processes}, nil
}

// Pause implements the Task service.
func (s taskService) Pause(ctx context.Context, req *taskapi.PauseRequest) (*emptypb.Empty, error) {
	return empty, errgrpc.ToGRPC(s.pod.pause(ctx, req.GetID()))
}

// Resume implements the Task service.
func (s taskService) Resume(ctx context.Context, req *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	return empty, errgrpc.ToGRPC(s.pod.resume(ctx, req.GetID()))
}

// ResizePty implements the Task service.
func (s taskService) ResizePty(_ context.Context, req *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	_, proc, err := s.pod.process(req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if req.GetWidth() > 1<<16-1 || req.GetHeight() > 1<<16-1 {
		return nil, errgrpc.ToGRPC(fmt.Errorf("terminal size %dx%d: %w", req.GetWidth(), req.GetHeight(), errdefs.ErrInvalidArgument))
	}
	return empty, errgrpc.ToGRPC(proc.stdio.Resize(uint16(req.GetWidth()), uint16(req.GetHeight())))
}

// CloseIO implements the Task service.
func (s taskService) CloseIO(_ context.Context, req *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	_, proc, err := s.pod.process(req.GetID(), req.GetExecID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if req.GetStdin() {
		proc.stdio.CloseStdin()
	}
	return empty, nil
}

// Update implements the Task service.
func (s taskService) Update(ctx context.Context, req *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	var res specs.LinuxResources
	if err := json.Unmarshal(req.GetResources().GetValue(), &res); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("decode resources: %w: %w", err, errdefs.ErrInvalidArgument))
	}
	ctr, err := s.pod.container(req.GetID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return empty, errgrpc.ToGRPC(ctr.Update(ctx, &res))
}

// Stats implements the Task service.
func (s taskService) Stats(_ context.Context, req *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	ctr, err := s.pod.container(req.GetID())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	metrics, err := ctr.Stats()
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	packed, err := typeurl.MarshalAnyToProto(metrics)
	if err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("encode stats: %w", err))
	}
	return &taskapi.StatsResponse{Stats: packed}, nil
}

// Connect implements the Task service: Guest.Hello identifies the agent.
func (taskService) Connect(context.Context, *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	return nil, errgrpc.ToGRPC(fmt.Errorf("connect: %w", errdefs.ErrNotImplemented))
}

// Checkpoint implements the Task service: guest processes cannot be
// checkpointed.
func (taskService) Checkpoint(context.Context, *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, errgrpc.ToGRPC(fmt.Errorf("checkpoint: %w", errdefs.ErrNotImplemented))
}

// Shutdown implements the Task service: the guest ends with Guest.PowerOff.
func (taskService) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	return nil, errgrpc.ToGRPC(fmt.Errorf("shutdown: %w", errdefs.ErrNotImplemented))
}

func (p *process) status() tasktypes.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.status()
}
