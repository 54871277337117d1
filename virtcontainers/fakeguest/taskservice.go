package fakeguest

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// taskService is the Task service of the agent, as far as the host calls it.
type taskService struct{ agent *Agent }

var _ task.TTRPCTaskService = taskService{}

// answer runs the steps that all calls share: the script, then the call, then
// the error as a gRPC status.
func answer[Resp any](ctx context.Context, a *Agent, method string, req proto.Message, call func() (Resp, error)) (Resp, error) {
	var none Resp
	if err := a.enter(ctx, method, req); err != nil {
		return none, errgrpc.ToGRPC(err)
	}
	resp, err := call()
	if err == nil {
		err = a.leave(ctx, method, req)
	}
	if err != nil {
		return none, errgrpc.ToGRPC(err)
	}
	return resp, nil
}

// answerOpen is answer for a call that fails while no container may come. The call has the
// agent's lock.
func answerOpen[Resp any](ctx context.Context, a *Agent, method string, req proto.Message, call func() (Resp, error)) (Resp, error) {
	return answer(ctx, a, method, req, func() (none Resp, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.checkOpen(); err != nil {
			return none, fmt.Errorf("%s: %w", method, err)
		}
		return call()
	})
}

// Create implements the Task service.
func (s taskService) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	return answer(ctx, s.agent, "Create", r, func() (*task.CreateTaskResponse, error) {
		if err := bundle.CheckID(r.ID); err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		var config api.ContainerConfig
		if err := proto.Unmarshal(r.GetOptions().GetValue(), &config); err != nil {
			return nil, fmt.Errorf("decode container: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		s.agent.mu.Lock()
		defer s.agent.mu.Unlock()
		if err := s.agent.checkOpen(); err != nil {
			return nil, fmt.Errorf("container %s: %w", r.ID, err)
		}
		if _, taken := s.agent.containers[r.ID]; taken {
			return nil, fmt.Errorf("container %s: %w", r.ID, errdefs.ErrAlreadyExists)
		}
		s.agent.containers[r.ID] = &container{
			id: r.ID, config: &config, execs: make(map[string]*process),
			init: newProcess(r.ID, "", r.Stdin, r.Stdout, r.Stderr),
		}
		return &task.CreateTaskResponse{Pid: 7}, nil
	})
}

// Start implements the Task service.
func (s taskService) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	return answer(ctx, s.agent, "Start", r, func() (*task.StartResponse, error) {
		c, p, err := s.agent.find(r.ID, r.ExecID)
		if err != nil {
			return nil, err
		}
		if p != c.init && !c.init.is(created) && !c.init.is(running) {
			return nil, fmt.Errorf("start exec %s: container %s does not run: %w", r.ExecID, r.ID, errdefs.ErrFailedPrecondition)
		}
		if err := p.start(); err != nil {
			return nil, err
		}
		if p != c.init {
			err = s.agent.starting(r)
		}
		if err = p.run(ctx, err); err != nil {
			s.agent.drop(c, p)
			return nil, err
		}
		return &task.StartResponse{Pid: 7}, s.agent.warmUp(p)
	})
}

// Exec implements the Task service.
func (s taskService) Exec(ctx context.Context, r *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, "Exec", r, func() (*emptypb.Empty, error) {
		if err := bundle.CheckID(r.ExecID); err != nil {
			return nil, fmt.Errorf("exec: %w", err)
		}
		c, init, err := s.agent.find(r.ID, "")
		if err != nil {
			return nil, err
		}
		if init.is(stopped) || init.is(paused) {
			return nil, fmt.Errorf("exec %s: container %s does not run: %w", r.ExecID, r.ID, errdefs.ErrFailedPrecondition)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, taken := c.execs[r.ExecID]; taken {
			return nil, fmt.Errorf("exec %s: %w", r.ExecID, errdefs.ErrAlreadyExists)
		}
		c.execs[r.ExecID] = newProcess(r.ID, r.ExecID, r.Stdin, r.Stdout, r.Stderr)
		return &emptypb.Empty{}, nil
	})
}

// Kill implements the Task service: every signal but 0 ends what it reaches.
func (s taskService) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, "Kill", r, func() (*emptypb.Empty, error) {
		_, p, err := s.agent.find(r.ID, r.ExecID)
		if err != nil {
			return nil, err
		}
		if r.Signal == uint32(unix.SIGKILL) && p.doom() {
			return &emptypb.Empty{}, nil
		}
		if err := p.reachable(); err != nil {
			return nil, err
		}
		if r.Signal != 0 && !p.isDeaf() {
			err = s.agent.Exit(r.ID, r.ExecID, 128+r.Signal)
		}
		return &emptypb.Empty{}, err
	})
}

func (p *process) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaf
}

// Wait implements the Task service.
func (s taskService) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	return answer(ctx, s.agent, "Wait", r, func() (*task.WaitResponse, error) {
		_, p, err := s.agent.find(r.ID, r.ExecID)
		if err != nil {
			return nil, err
		}
		select {
		case <-p.ended:
			return &task.WaitResponse{ExitStatus: p.status}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// Delete implements the Task service.
func (s taskService) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	return answer(ctx, s.agent, "Delete", r, func() (*task.DeleteResponse, error) {
		c, p, err := s.agent.find(r.ID, r.ExecID)
		if err != nil {
			return nil, err
		}
		if err := s.agent.endUnstarted(ctx, r.ID, p); err != nil {
			return nil, err
		}
		if !p.is(stopped) {
			return nil, fmt.Errorf("delete: it is running: %w", errdefs.ErrFailedPrecondition)
		}
		s.agent.forget(c, p)
		return &task.DeleteResponse{ExitStatus: p.status}, nil
	})
}

// endUnstarted ends a process that does not run yet, for Delete.
func (a *Agent) endUnstarted(ctx context.Context, id string, p *process) error {
	if p.execID != "" && p.end(neverStarted, created) != nil { // no exit is reported
		return nil
	}
	if p.is(created) && !p.isDeaf() {
		return a.Exit(id, "", 128+uint32(unix.SIGKILL))
	}
	if (p.is(created) || p.doom()) && !p.awaitEnd(ctx) {
		return fmt.Errorf("delete: it is being started: %w", ctx.Err())
	}
	return nil
}

// forget removes an exec, or with its init a container.
func (a *Agent) forget(c *container, p *process) {
	if p.execID != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.execs, p.execID)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.containers, c.id)
}

// drop removes a process whose start has failed, if the host has given it up.
func (a *Agent) drop(c *container, p *process) {
	p.mu.Lock()
	dropped := p.dropped
	p.mu.Unlock()
	if dropped {
		a.forget(c, p)
	}
}

// Pids implements the Task service.
func (s taskService) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	return answer(ctx, s.agent, "Pids", r, func() (*task.PidsResponse, error) {
		c, _, err := s.agent.find(r.ID, "")
		if err != nil {
			return nil, err
		}
		if list := s.agent.shown(); list != nil {
			return &task.PidsResponse{Processes: list}, nil
		}
		resp := &task.PidsResponse{}
		for i := range 1 + len(c.running()) {
			resp.Processes = append(resp.Processes, &tasktypes.ProcessInfo{Pid: uint32(7 + i)})
		}
		return resp, nil
	})
}

// ResizePty implements the Task service.
func (s taskService) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, "ResizePty", r, func() (*emptypb.Empty, error) {
		_, _, err := s.agent.find(r.ID, r.ExecID)
		return &emptypb.Empty{}, err
	})
}

// Pause implements the Task service.
func (s taskService) Pause(ctx context.Context, r *task.PauseRequest) (*emptypb.Empty, error) {
	return s.turn(ctx, "Pause", r.ID, r, running, paused)
}

// Resume implements the Task service.
func (s taskService) Resume(ctx context.Context, r *task.ResumeRequest) (*emptypb.Empty, error) {
	return s.turn(ctx, "Resume", r.ID, r, paused, running)
}

func (s taskService) turn(ctx context.Context, method, id string, req proto.Message, from, to state) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, method, req, func() (*emptypb.Empty, error) {
		_, p, err := s.agent.find(id, "")
		if err != nil {
			return nil, err
		}
		return &emptypb.Empty{}, p.turn(from, to)
	})
}

// State implements the Task service.
func (s taskService) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return answer(ctx, s.agent, "State", r, func() (*task.StateResponse, error) {
		_, p, err := s.agent.find(r.ID, r.ExecID)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return &task.StateResponse{ID: r.ID, ExecID: r.ExecID, Pid: 7, Status: p.state.status(), ExitStatus: p.status}, nil
	})
}

// CloseIO implements the Task service.
func (s taskService) CloseIO(ctx context.Context, r *task.CloseIORequest) (*emptypb.Empty, error) {
	return answer(ctx, s.agent, "CloseIO", r, func() (*emptypb.Empty, error) {
		_, _, err := s.agent.find(r.ID, r.ExecID)
		return &emptypb.Empty{}, err
	})
}
