package task

import (
	"context"
	"errors"
	"fmt"

	eventtypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/shim/events"
	"github.com/katabox/katabox/shim/stdio"
	"github.com/katabox/katabox/virtcontainers"
)

// Start runs a container's init, or an exec.
func (s *Service) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	err = p.Start(ctx, func(info virtcontainers.ProcessInfo) {
		if r.ExecID != "" {
			s.opts.Publisher.Publish(ctx, events.TopicExecStarted,
				&eventtypes.TaskExecStarted{ContainerID: r.ID, ExecID: r.ExecID, Pid: uint32(info.PID)})
			return
		}
		s.opts.Publisher.Publish(ctx, events.TopicStart, &eventtypes.TaskStart{ContainerID: r.ID, Pid: uint32(info.PID)})
	})
	if err != nil {
		if r.ExecID != "" {
			s.execEnded(r.ID, r.ExecID)
		}
		return nil, err
	}
	return &task.StartResponse{Pid: uint32(p.Info().PID)}, nil
}

// Exec registers a further process of a container.
func (s *Service) Exec(ctx context.Context, r *task.ExecProcessRequest) (*emptypb.Empty, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	io, err := s.newIO(r.ExecID, r)
	if err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", r.ID, err)
	}
	if _, err := c.Exec(ctx, virtcontainers.ExecOptions{ID: r.ExecID, Terminal: r.Terminal, Spec: r.Spec, IO: io}); err != nil {
		return nil, err
	}
	s.opts.Publisher.Publish(ctx, events.TopicExecAdded, &eventtypes.TaskExecAdded{ContainerID: r.ID, ExecID: r.ExecID})
	return &emptypb.Empty{}, nil
}

// Delete removes a process that has ended. A second call during the first one gets
// the same answer, without a second event. It must not be "not found": containerd
// would report the exit again (core/runtime/v2/shim.go, delete). The creation of a
// container that is under way ends first.
func (s *Service) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	if r.ExecID == "" {
		if err := s.withdraw(ctx, r.ID); err != nil {
			return nil, fmt.Errorf("delete container %s: %w", r.ID, err)
		}
	}
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	exit, err := deleteProcess(ctx, c, r.ExecID)
	first := !errors.Is(err, virtcontainers.ErrDeleted)
	if err != nil && first {
		return nil, err
	}
	at := timestamppb.New(exit.At)
	if r.ExecID == "" && first {
		s.opts.Publisher.Publish(ctx, events.TopicDelete, &eventtypes.TaskDelete{
			ContainerID: r.ID, Pid: uint32(exit.PID), ExitStatus: exit.Status, ExitedAt: at,
		})
	}
	return &task.DeleteResponse{Pid: uint32(exit.PID), ExitStatus: exit.Status, ExitedAt: at}, nil
}

func deleteProcess(ctx context.Context, c *virtcontainers.Container, execID string) (virtcontainers.Exit, error) {
	if execID == "" {
		return c.Delete(ctx)
	}
	p, err := c.Process(execID)
	if err != nil {
		return virtcontainers.Exit{}, err
	}
	return p.Delete(ctx)
}

// Wait answers when the process has ended. There may be any number of waiters,
// also afterwards. When the connection of a waiter that owns the process
// (engine.Policy) ends first, the process is killed: to the engine, that waiter's
// pid is the process.
func (s *Service) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		if s.policy.WaiterOwnsProcess && ctx.Err() != nil {
			err = errors.Join(err, killOrphan(ctx, p))
		}
		return nil, err
	}
	if r.ExecID == "" {
		s.exits.noteWait(exit)
	}
	return &task.WaitResponse{ExitStatus: exit.Status, ExitedAt: timestamppb.New(exit.At)}, nil
}

// Kill sends a signal.
func (s *Service) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	err = p.Kill(ctx, r.Signal, r.All)
	if s.policy.EndedTakesSignals && errdefs.IsNotFound(err) && r.Signal != 0 {
		err = nil // the process exists, and has ended; signal 0 asks for that
	}
	return empty(err)
}

// ResizePty sets a terminal's size.
func (s *Service) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	return empty(p.Resize(ctx, r.Width, r.Height))
}

// CloseIO ends a process's standard input.
func (s *Service) CloseIO(_ context.Context, r *task.CloseIORequest) (*emptypb.Empty, error) {
	p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if r.Stdin {
		p.CloseStdin()
	}
	return &emptypb.Empty{}, nil
}

// Pids lists a container's processes. A container lists its init until it is deleted,
// also after its end, as a parent sees a child that it has not waited for, and whatever
// the guest answers: when containerd 2.x restarts, it takes a shim whose task has no
// processes, or does not list them, for a leaked one and deletes it
// (shouldCleanupShim), and with it an exit that was not reported.
func (s *Service) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	return &task.PidsResponse{Processes: c.Pids(ctx)}, nil
}

// State returns a process's state and the paths of its stdio.
func (s *Service) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, err
	}
	p, err := c.Process(r.ExecID)
	if err != nil {
		return nil, err
	}
	info, paths := seen(c, p), stdio.Paths{}
	if io, ok := p.IO().(*stdio.IO); ok {
		paths = io.Paths()
	}
	resp := &task.StateResponse{
		ID: r.ID, ExecID: r.ExecID, Bundle: c.Bundle.Dir, Pid: uint32(info.PID), Status: status(info.State),
		Stdin: paths.Stdin, Stdout: paths.Stdout, Stderr: paths.Stderr, Terminal: info.Terminal,
	}
	if resp.Status == tasktypes.Status_STOPPED { // also while it is being deleted
		resp.ExitStatus, resp.ExitedAt = info.Exit.Status, timestamppb.New(info.Exit.At)
	}
	return resp, nil
}

// seen returns a process's state as runc's shim would report it: an exec has no
// pid before its start, and is paused with its container.
func seen(c *virtcontainers.Container, p *virtcontainers.Process) virtcontainers.ProcessInfo {
	info, whole := p.Info(), c.Info()
	if p.IsExec() && info.State == virtcontainers.Created {
		info.PID = 0
	}
	if info.State == virtcontainers.Running && whole.State == virtcontainers.Paused {
		info.State = virtcontainers.Paused
	}
	return info
}

func status(s virtcontainers.State) tasktypes.Status {
	switch s {
	case virtcontainers.Created:
		return tasktypes.Status_CREATED
	case virtcontainers.Running:
		return tasktypes.Status_RUNNING
	case virtcontainers.Paused:
		return tasktypes.Status_PAUSED
	case virtcontainers.Stopped, virtcontainers.Deleted:
		return tasktypes.Status_STOPPED
	}
	return tasktypes.Status_UNKNOWN
}

// Connect returns the pids of the shim and of the sandbox's process. For an
// unknown container it returns only the shim's: engines call it for a shim that
// they found.
func (s *Service) Connect(_ context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	resp := &task.ConnectResponse{ShimPid: shimPID()}
	if p, err := s.process(r.ID, ""); err == nil {
		resp.TaskPid = uint32(p.Info().PID)
	}
	return resp, nil
}

// Shutdown ends the shim once no container is left; engines call it after every
// Delete.
func (s *Service) Shutdown(_ context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	if s.empty() || r.Now {
		s.opts.Exit()
	}
	return &emptypb.Empty{}, nil
}

// empty is the answer of calls that return nothing.
func empty(err error) (*emptypb.Empty, error) {
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
