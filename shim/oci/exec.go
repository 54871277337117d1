package oci

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// processType is the type under which engines send an OCI Process.
const processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// ExecOptions are the options of the exec command.
type ExecOptions struct {
	// Process is the process to run.
	Process *specs.Process
	// Detach leaves the process with a monitor and returns.
	Detach bool
	// PIDFile gets the monitor's pid; "" for none.
	PIDFile       string
	ConsoleSocket string
}

// InitProcess returns the container's own process, as the base for an exec that
// differs from it only in some fields.
func (r *Runtime) InitProcess(id string) (*specs.Process, error) {
	if _, err := r.load(id); err != nil {
		return nil, err
	}
	b, err := bundle.Load(r.dir(id))
	if err != nil {
		return nil, err
	}
	return b.Spec.Process, nil
}

// Exec runs a further process in a container. It returns how the process has
// ended, or the zero value once a detached process runs.
func (r *Runtime) Exec(ctx context.Context, id string, o ExecOptions) (exit monitor.Exit, err error) {
	if err := checkConsole(o.Process.Terminal, o.ConsoleSocket, o.Detach); err != nil {
		return exit, err
	}
	if err := r.mayExec(ctx, id); err != nil {
		return exit, err
	}
	execID := rand.Text()
	note, err := r.noteExec(id, execID, os.Getpid()) // whose the FIFOs are
	if err != nil {
		return exit, err
	}
	defer func() {
		if err != nil || !o.Detach {
			_ = os.Remove(note)
		}
	}()
	stdio, err := r.makeStdio(id, execStdio(execID), o.Process.Terminal)
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, stdio.Remove(), stdio.Close()) }()
	shim, err := client.Connect(ctx, r.dir(id))
	if err != nil {
		return exit, err
	}
	defer shim.Close()
	r.sweepExecs(ctx, shim, id)
	if err := add(ctx, shim, id, execID, o.Process, stdio); err != nil {
		return exit, err
	}
	start := func() error {
		if err := startExec(ctx, shim, id, execID); err != nil {
			return err
		}
		return stdio.Remove() // now: this process may be killed before the other ends
	}
	if o.Detach {
		err = r.execDetached(ctx, process{id: id, execID: execID, spec: o.Process, stdio: stdio, consoleSocket: o.ConsoleSocket}, o.PIDFile, shim, start)
	} else {
		exit, err = r.execAttached(ctx, id, execID, o, stdio, start)
	}
	if err != nil {
		err = errors.Join(err, forget(ctx, shim, id, execID))
	}
	return exit, err
}

// mayExec returns an error if the container does not run.
func (r *Runtime) mayExec(ctx context.Context, id string) error {
	rec, err := r.load(id)
	if err != nil {
		return err
	}
	now, err := r.status(ctx, rec)
	switch {
	case err != nil:
		return err
	case now == Creating:
		return fmt.Errorf("cannot exec in a container that is being created: %w", errdefs.ErrFailedPrecondition)
	case now == Stopped:
		return fmt.Errorf("cannot exec in a stopped container: %w", errdefs.ErrFailedPrecondition)
	case now == Paused:
		return fmt.Errorf("cannot exec in a paused container (use --ignore-paused to override): %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

func add(ctx context.Context, shim *client.Shim, id, execID string, p *specs.Process, stdio *client.Stdio) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = shim.Exec(ctx, &task.ExecProcessRequest{
		ID: id, ExecID: execID, Terminal: p.Terminal, Spec: &anypb.Any{TypeUrl: processType, Value: data},
		Stdin: stdio.In, Stdout: stdio.Out, Stderr: stdio.Err,
	})
	return err
}

func startExec(ctx context.Context, shim *client.Shim, id, execID string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := shim.Start(ctx, &task.StartRequest{ID: id, ExecID: execID})
	return err
}

// forget removes an exec that could not be run.
func forget(ctx context.Context, shim *client.Shim, id, execID string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, err := shim.TTRPCTaskService.Delete(ctx, &task.DeleteRequest{ID: id, ExecID: execID})
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return nil
	}
	return err
}

func (r *Runtime) execAttached(ctx context.Context, id, execID string, o ExecOptions, stdio *client.Stdio, start func() error) (monitor.Exit, error) {
	if err := writePIDFile(o.PIDFile, os.Getpid()); err != nil {
		return monitor.Exit{}, err
	}
	return monitor.Run(ctx, monitor.Config{Bundle: r.dir(id), ID: id, ExecID: execID, Terminal: o.Process.Terminal}, stdio, start)
}

func (r *Runtime) execDetached(ctx context.Context, p process, pidFile string, shim *client.Shim, start func() error) error {
	state, err := shim.State(ctx, &task.StateRequest{ID: p.id})
	if err != nil {
		return err
	}
	p.pid = int(state.Pid)
	child, err := r.launch(ctx, p)
	if err != nil {
		return err
	}
	_, err = r.noteExec(p.id, p.execID, child.Pid)
	if err == nil {
		err = start()
	}
	if err == nil {
		err = writePIDFile(pidFile, child.Pid)
	}
	if err != nil {
		return errors.Join(err, endMonitor(child))
	}
	return nil
}
