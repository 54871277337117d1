package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/stream"
)

// addExec registers an exec of a running container.
func (p *Pod) addExec(req *taskapi.ExecProcessRequest) error {
	if err := checkID("exec", req.GetExecID()); err != nil {
		return err
	}
	t, err := p.task(req.GetID())
	if err != nil {
		return err
	}
	if err := t.init.check("add a process to", created, starting, running); err != nil {
		return err
	}
	var spec specs.Process
	if err := json.Unmarshal(req.GetSpec().GetValue(), &spec); err != nil {
		return fmt.Errorf("decode process %s: %w: %w", req.GetExecID(), err, errdefs.ErrInvalidArgument)
	}
	stdio, err := stream.New(stream.Request{
		Terminal: req.GetTerminal(),
		Stdin:    req.GetStdin() != "", Stdout: req.GetStdout() != "", Stderr: req.GetStderr() != "",
	})
	if err != nil {
		return err
	}
	proc := newProcess(t.id, req.GetExecID(), stdio)
	proc.spec, proc.state = &spec, created
	if err := t.addExec(proc); err != nil {
		stdio.Child().Close()
		stdio.Close()
		return err
	}
	return nil
}

// startExec starts a registered exec. That may last until the host's deadline has
// passed, or the host kills or deletes the exec: for the host its start has failed, and
// it is ended.
func (p *Pod) startExec(ctx context.Context, t *task, exec *process) (uint32, error) {
	if err := t.init.check("start a process in", created, starting, running); err != nil {
		return 0, err
	}
	ctr, err := t.container()
	if err != nil {
		return 0, err
	}
	if err := exec.move("start", starting, created); err != nil {
		return 0, err
	}
	proc, err := ctr.Exec(exec.sized(), childStdio(exec.stdio))
	if err != nil {
		// As with runc's shim, a failed start ends the process: no exit is
		// reported, and only Delete remains to be called.
		exec.stdio.Child().Close()
		exec.failed()
		return 0, err
	}
	err = adopt(exec.stdio, proc)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%s was started too late for the host: %w", exec.name(), context.Cause(ctx))
	}
	if err == nil {
		err = exec.begun(proc, running)
	}
	if err != nil {
		_ = proc.Signal(unix.SIGKILL)
		proc.Wait()
		exec.stdio.Ended()
		exec.failed()
		return 0, err
	}
	pid := uint32(proc.Pid())
	ctx = context.WithoutCancel(ctx)
	p.watchers.Go(func() { p.watchExec(ctx, t, exec, proc) })
	return pid, nil
}

// sized returns an exec's spec with the size that its terminal was given since.
func (p *process) sized() *specs.Process {
	if size, ok := p.stdio.StartSize(); ok {
		p.spec.ConsoleSize = &specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
	}
	return p.spec
}

// kill sends a signal to a process, or to all processes of a container.
func (p *Pod) kill(req *taskapi.KillRequest) error {
	t, proc, err := p.process(req.GetID(), req.GetExecID())
	if err != nil {
		return err
	}
	sig := unix.Signal(req.GetSignal())
	whole := req.GetExecID() == "" && (req.GetAll() || sig == unix.SIGKILL)
	if !whole {
		return proc.signal(sig)
	}
	if err := proc.signal(0); err != nil {
		return err
	}
	ctr, err := t.container()
	if err != nil {
		return err
	}
	return ctr.Signal(sig)
}

// delete removes a process that has ended or was never started; deleting an
// init removes its container.
func (p *Pod) delete(ctx context.Context, id, execID string) (*taskapi.DeleteResponse, error) {
	t, proc, err := p.process(id, execID)
	if err != nil {
		return nil, err
	}
	if execID != "" {
		return p.deleteExec(ctx, t, proc)
	}
	if err := p.endCreated(ctx, t); err != nil {
		return nil, err
	}
	if err := proc.move("delete", deleting, stopped); err != nil {
		return nil, err
	}
	ctr, err := t.container()
	if err == nil {
		err = p.destroy(t, ctr)
	}
	if err != nil {
		_ = proc.move("delete", stopped, deleting) // It may be tried again.
		return nil, err
	}
	return proc.deleted(), nil
}

// endCreated kills an init that was never started, which does nothing but wait.
func (p *Pod) endCreated(ctx context.Context, t *task) error {
	if !t.init.is(created) {
		return nil
	}
	ctr, err := t.container()
	if err != nil {
		return err
	}
	if err := ctr.Kill(); err != nil {
		return err
	}
	_, err = t.init.wait(ctx)
	return err
}

// deleteExec removes an exec. One that is being started ends with its start, for which
// deleteExec waits. If ctx ends first, the exec is removed later: the host has forgotten
// it then.
func (p *Pod) deleteExec(ctx context.Context, t *task, exec *process) (*taskapi.DeleteResponse, error) {
	if exec.move("delete", stopped, created) == nil {
		exec.failed() // wakes the waiters
	}
	if exec.doom() {
		if _, err := exec.wait(ctx); err != nil {
			p.watchers.Go(func() {
				<-exec.exited
				_, _ = p.removeExec(t, exec) // Another Delete may have come first.
			})
			return nil, fmt.Errorf("cannot delete %s: it is being started: %w", exec.name(), err)
		}
	}
	return p.removeExec(t, exec)
}

// removeExec removes an exec that has ended.
func (p *Pod) removeExec(t *task, exec *process) (*taskapi.DeleteResponse, error) {
	if err := exec.move("delete", deleting, stopped); err != nil {
		return nil, err
	}
	exec.stdio.Child().Close()
	exec.stdio.Close()
	t.removeExec(exec)
	return exec.deleted(), nil
}

// keepMounts has a container's mounts outlive it.
func (p *Pod) keepMounts(id string) error {
	t, _, err := p.process(id, "")
	if err != nil {
		return err
	}
	ctr, err := t.container()
	if err != nil {
		return err
	}
	ctr.KeepMounts()
	return nil
}

// destroy removes everything of a container whose init has ended. If its
// storages cannot be released, the rest is gone and destroy may be called
// again.
func (p *Pod) destroy(t *task, ctr Container) error {
	for _, exec := range t.allExecs() {
		exec.stdio.Child().Close()
		exec.stdio.Close()
	}
	t.init.stdio.Close()
	if !t.destroyed {
		if err := ctr.Destroy(); err != nil {
			return err
		}
		t.destroyed = true
	}
	if err := errors.Join(p.unpinFirst(t), p.disks.Unmount(t.storages)); err != nil {
		return err
	}
	p.remove(t)
	return nil
}
