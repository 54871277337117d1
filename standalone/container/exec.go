package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/standalone/spec"
)

// processType is the type of the specification in an exec's request.
const processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// Exec is a further command in a container.
type Exec struct{ process }

// StartExec starts a command in a running container, with the settings of the
// container's command except where o differs. The caller must call Wait.
func (m *Manager) StartExec(ctx context.Context, name string, o spec.Options, stdio *Stdio) (_ *Exec, err error) {
	request, err := m.execRequest(ctx, name, o)
	if err != nil {
		return nil, err
	}
	shim, err := client.Connect(ctx, m.Store.ContainerDir(name))
	if err != nil {
		return nil, err
	}
	e := &Exec{process{Name: name, exec: request.ExecID, shim: shim}}
	if err := stdio.open(m.Store.ContainerDir(name), e.exec, o.Terminal); err != nil {
		return nil, errors.Join(err, shim.Close())
	}
	request.Stdin, request.Stdout, request.Stderr = stdio.fifos.In, stdio.fifos.Out, stdio.fifos.Err
	if _, err = shim.Exec(ctx, request); err == nil {
		e.beginWait(ctx)
		if _, err = shim.Start(ctx, &task.StartRequest{ID: name, ExecID: e.exec}); err != nil {
			err = errors.Join(startError(err), e.remove(ctx))
		}
	}
	if err != nil {
		return nil, errors.Join(err, stdio.close(), e.disconnect())
	}
	return e, nil
}

// execRequest makes the request without its streams.
func (m *Manager) execRequest(ctx context.Context, name string, o spec.Options) (*task.ExecProcessRequest, error) {
	r, err := m.Load(name)
	if err != nil {
		return nil, err
	}
	if r.State() != "running" {
		return nil, fmt.Errorf("container %s is not running, but %s: %w", name, r.State(), errdefs.ErrFailedPrecondition)
	}
	s, err := m.readSpec(name)
	if err != nil {
		return nil, err
	}
	process, err := m.execProcess(ctx, name, s.Process, o)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(process)
	if err != nil {
		return nil, fmt.Errorf("encode process: %w", err)
	}
	return &task.ExecProcessRequest{
		ID: name, ExecID: "exec-" + randomName(), Terminal: o.Terminal,
		Spec: &anypb.Any{TypeUrl: processType, Value: data},
	}, nil
}

// execProcess makes the command's process. Its user is one of the container's as they
// are now.
func (m *Manager) execProcess(ctx context.Context, name string, of *specs.Process, o spec.Options) (process *specs.Process, err error) {
	if o.User == "" {
		return spec.Exec(ctx, "", of, o)
	}
	err = m.Store.Users(ctx, name, func(root string) error {
		process, err = spec.Exec(ctx, root, of, o)
		return err
	})
	return process, err
}

// Wait connects the command to its streams. It waits until it has ended and its output
// was passed on, and returns its exit code. When the container ends first, so does the
// command. What fails after the command's end is a warning. If output was dropped because
// it could not be written, the code of a command that did not fail is ExitError. The
// output of processes that the command leaves behind is not waited for.
func (e *Exec) Wait(ctx context.Context, stdio *Stdio) (int, error) {
	stdio.relay(func() { _ = e.closeStdin(context.WithoutCancel(ctx)) }) // a command that has ended needs no end of its input
	resp, err := e.exit.wait(ctx)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("wait for command: %w", err), stdio.close(), e.disconnect())
	}
	stdio.warn(stdio.drain(ctx))
	stdio.warn(errors.Join(e.remove(ctx), stdio.close(), e.disconnect()))
	return stdio.exitCode(int(resp.ExitStatus)), nil
}

// remove removes the command from the shim, which may have ended with its
// container.
func (e *Exec) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := e.shim.Delete(ctx, &task.DeleteRequest{ID: e.Name, ExecID: e.exec})
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}
