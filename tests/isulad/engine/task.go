package engine

import (
	"context"
	"fmt"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Call is one call that the engine made for a container.
type Call struct {
	// Name is the method, with the argument that distinguishes its calls:
	// "Kill(9)".
	Name string
	Err  error
}

// String formats the call for comparison in tests: "Kill(9)" or
// "Kill(9) failed".
func (c Call) String() string {
	if c.Err != nil {
		return c.Name + " failed"
	}
	return c.Name
}

// call calls the container's shim and notes the call. Without a connection it
// fails as iSulad's client does, and nothing reaches a shim.
func (c *Container) call(ctx context.Context, name, method string, req, resp proto.Message) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	noted := func(error) {}
	if method != "Wait" {
		noted = c.note(name)
	}
	err := errNoShim
	if conn != nil {
		err = conn.call(ctx, method, req, resp)
	}
	if err != nil {
		err = fmt.Errorf("%s of container %.12s: %w", name, c.ID, err)
	}
	if method == "Wait" { // listed where it returns, not where it begins
		noted = c.note(name)
	}
	noted(err)
	return err
}

// note notes the start of a call; the function that it returns notes the
// outcome.
func (c *Container) note(name string) (outcome func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.calls)
	c.calls = append(c.calls, Call{Name: name})
	return func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[i].Err = err
	}
}

func (c *Container) taskCreate(ctx context.Context, p paths) error {
	req := &task.CreateTaskRequest{
		ID: c.ID, Bundle: c.Bundle(), Terminal: c.cfg.TTY, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr,
	}
	return c.call(ctx, "Create", "Create", req, &task.CreateTaskResponse{})
}

func (c *Container) taskStart(ctx context.Context, execID string) (uint32, error) {
	var resp task.StartResponse
	err := c.call(ctx, named("Start", execID), "Start", &task.StartRequest{ID: c.ID, ExecID: execID}, &resp)
	return resp.Pid, err
}

// taskWait returns the code that iSulad records: 0 when the call failed, 125
// for a negative one.
func (c *Container) taskWait(ctx context.Context, execID string) (int32, error) {
	var resp task.WaitResponse
	err := c.call(ctx, named("Wait", execID), "Wait", &task.WaitRequest{ID: c.ID, ExecID: execID}, &resp)
	if err != nil {
		return 0, err
	}
	if code := int32(resp.ExitStatus); code >= 0 {
		return code, nil
	}
	return exitUnknown, nil
}

// Kill sends a signal, to the container alone: iSulad never sets All and never
// names an exec. Signal 0 checks whether the container is alive.
func (c *Container) Kill(ctx context.Context, signal uint32) error {
	req := &task.KillRequest{ID: c.ID, Signal: signal}
	return c.call(ctx, fmt.Sprintf("Kill(%d)", signal), "Kill", req, &emptypb.Empty{})
}

func (c *Container) taskDelete(ctx context.Context) error {
	return c.call(ctx, "Delete", "Delete", &task.DeleteRequest{ID: c.ID}, &task.DeleteResponse{})
}

func (c *Container) taskShutdown(ctx context.Context) error {
	return c.call(ctx, "Shutdown", "Shutdown", &task.ShutdownRequest{ID: c.ID}, &emptypb.Empty{})
}

func (c *Container) taskExec(ctx context.Context, execID string, terminal bool, spec *anypb.Any, p paths) error {
	req := &task.ExecProcessRequest{
		ID: c.ID, ExecID: execID, Terminal: terminal, Spec: spec, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr,
	}
	return c.call(ctx, "Exec", "Exec", req, &emptypb.Empty{})
}

// Pause is "isula pause".
func (c *Container) Pause(ctx context.Context) error {
	return c.call(ctx, "Pause", "Pause", &task.PauseRequest{ID: c.ID}, &emptypb.Empty{})
}

// Resume is "isula unpause".
func (c *Container) Resume(ctx context.Context) error {
	return c.call(ctx, "Resume", "Resume", &task.ResumeRequest{ID: c.ID}, &emptypb.Empty{})
}

// Resize sets the terminal's size of the container, or of an exec.
func (c *Container) Resize(ctx context.Context, execID string, height, width uint32) error {
	req := &task.ResizePtyRequest{ID: c.ID, ExecID: execID, Height: height, Width: width}
	return c.call(ctx, named("ResizePty", execID), "ResizePty", req, &emptypb.Empty{})
}

// State asks for the state, as iSulad does when it restores a container.
func (c *Container) State(ctx context.Context) (tasktypes.Status, uint32, error) {
	var resp task.StateResponse
	err := c.call(ctx, "State", "State", &task.StateRequest{ID: c.ID}, &resp)
	return resp.Status, resp.Pid, err
}

// Pids is the call of "isula top"; an empty list makes iSulad panic.
func (c *Container) Pids(ctx context.Context) ([]*tasktypes.ProcessInfo, error) {
	var resp task.PidsResponse
	err := c.call(ctx, "Pids", "Pids", &task.PidsRequest{ID: c.ID}, &resp)
	return resp.Processes, err
}

// Stats is the call of "isula stats". iSulad decodes cgroup v1 metrics whatever
// type the answer has, and panics on an error.
func (c *Container) Stats(ctx context.Context) (*v1.Metrics, error) {
	var resp task.StatsResponse
	if err := c.call(ctx, "Stats", "Stats", &task.StatsRequest{ID: c.ID}, &resp); err != nil {
		return nil, err
	}
	m := new(v1.Metrics)
	if err := proto.Unmarshal(resp.GetStats().GetValue(), m); err != nil {
		return nil, fmt.Errorf("decode stats as v1 metrics: %w", err)
	}
	return m, nil
}

func named(name, execID string) string {
	if execID == "" {
		return name
	}
	return name + "(exec)"
}
