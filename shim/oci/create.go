package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// CreateOptions are the options of the create command.
type CreateOptions struct {
	// Bundle is the engine's bundle.
	Bundle string
	// PIDFile gets the monitor's pid; "" for none.
	PIDFile string
	// ConsoleSocket is where the master of the container's terminal is sent.
	ConsoleSocket string
	// Checkpoint is the absolute path of a checkpoint's directory; "" makes the
	// container anew.
	Checkpoint string
}

// Create makes a container and its monitor, which inherits this process's stdio.
// On an error nothing is left.
func (r *Runtime) Create(ctx context.Context, id string, o CreateOptions) error {
	return r.create(ctx, id, o, true, func(m made) error { return r.attach(ctx, m, o) })
}

// made is a container in its shim which no process of the engine's represents yet.
type made struct {
	rec  *record
	spec *specs.Spec
	// stdio are its FIFOs, without their names. create owns them.
	stdio *client.Stdio
	// pid is the stand-in's.
	pid int
}

// create makes a container. represent gives it the process that is its pid to the engine;
// detach says that this process does not stay for it. On an error, also of represent,
// nothing is left.
func (r *Runtime) create(ctx context.Context, id string, o CreateOptions, detach bool, represent func(made) error) error {
	if err := bundle.CheckID(id); err != nil {
		return err
	}
	dir, err := filepath.Abs(o.Bundle)
	if err != nil {
		return fmt.Errorf("find bundle: %w", err)
	}
	b, err := bundle.Load(dir)
	if err != nil {
		return err
	}
	if err := checkConsole(b.Spec.Process.Terminal, o.ConsoleSocket, detach); err != nil {
		return err
	}
	if err := r.completePlace(id, b.Spec); err != nil {
		return err
	}
	place, err := bundle.Place(id, b.Spec.Annotations)
	if err != nil {
		return err
	}
	rec := &record{ID: id, Bundle: dir, Rootfs: b.RootfsPath(), Created: time.Now().UTC(), SandboxID: place.SandboxID}
	if rec.Creator, err = persist.Identify(os.Getpid()); err != nil {
		return err
	}
	if err := r.joinByStandIn(ctx, rec, b.Spec); err != nil {
		return err
	}
	if err := r.makeDir(rec, b.Spec); err != nil {
		return err
	}
	if err := r.createTask(ctx, rec, b.Spec, o.Checkpoint, represent); err != nil {
		return errors.Join(err, r.removeOwn(rec))
	}
	return nil
}

// checkConsole refuses a terminal without a user, and a socket to which nothing
// would be sent.
func checkConsole(terminal bool, socket string, detach bool) error {
	switch {
	case terminal && detach && socket == "":
		return fmt.Errorf("cannot allocate tty if kata-runtime will detach without setting --console-socket: %w", errdefs.ErrInvalidArgument)
	case socket != "" && (!terminal || !detach):
		return fmt.Errorf("cannot use --console-socket if kata-runtime will not detach or allocate tty: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// makeDir claims the id. The directory then is a bundle separate from the
// engine's: the shim keeps its files there, and the engine may change its spec.
func (r *Runtime) makeDir(rec *record, spec *specs.Spec) error {
	if err := os.MkdirAll(r.Root, 0o700); err != nil {
		return fmt.Errorf("make root directory: %w", err)
	}
	dir := r.dir(rec.ID)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("container with id %s exists: %w", rec.ID, errdefs.ErrAlreadyExists)
	} else if err != nil {
		return fmt.Errorf("make container's directory: %w", err)
	}
	spec.Root.Path = rec.Rootfs
	data, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, bundle.SpecFile), data, 0o600)
	}
	if err == nil {
		err = os.Symlink(rec.Bundle, filepath.Join(dir, bundle.OriginLink)) // for hooks
	}
	if err == nil {
		err = r.save(rec)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write container's directory: %w", err), os.RemoveAll(dir))
	}
	return nil
}

// createTask starts the shim and makes the container in it, from a checkpoint if one is
// named.
func (r *Runtime) createTask(ctx context.Context, rec *record, spec *specs.Spec, checkpoint string, represent func(made) error) (err error) {
	stdio, err := r.makeStdio(rec.ID, "io-init", spec.Process.Terminal)
	if err != nil {
		return err
	}
	defer stdio.Close()
	shim, err := client.Start(ctx, r.program(rec.ID))
	if err != nil {
		return r.explainNoSandbox(rec, err)
	}
	defer shim.Close()
	defer func() {
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = errors.Join(err, r.undoCancelled(ctx, shim, rec))
		default:
			err = errors.Join(err, r.undo(ctx, shim, rec.ID))
		}
	}()
	resp, err := shim.Create(ctx, &task.CreateTaskRequest{ID: rec.ID, Bundle: r.dir(rec.ID), Terminal: spec.Process.Terminal,
		Checkpoint: checkpoint, Stdin: stdio.In, Stdout: stdio.Out, Stderr: stdio.Err})
	if err != nil {
		return err
	}
	if err := stdio.Remove(); err != nil {
		return fmt.Errorf("remove FIFOs: %w", err)
	}
	return represent(made{rec: rec, spec: spec, stdio: stdio, pid: int(resp.Pid)})
}

// attach connects the container to its terminal and its monitor, and reports the
// pid to the engine.
func (r *Runtime) attach(ctx context.Context, m made, o CreateOptions) error {
	p := process{id: m.rec.ID, pid: m.pid, spec: m.spec.Process, stdio: m.stdio, consoleSocket: o.ConsoleSocket}
	child, err := r.launch(ctx, p)
	if err != nil {
		return err
	}
	r.count(m.rec, child.Pid)
	if err := r.represent(m.rec, child.Pid, o.PIDFile); err != nil {
		return errors.Join(err, endMonitor(child))
	}
	return nil
}

// represent makes a process the container's to the engine. The container is created then.
func (r *Runtime) represent(rec *record, pid int, pidFile string) error {
	var err error
	if rec.Monitor, err = persist.Identify(pid); err != nil {
		return err
	}
	rec.Creator = persist.Process{}
	if err := r.save(rec); err != nil {
		return err
	}
	return writePIDFile(pidFile, pid)
}

// process describes a process that needs a monitor.
type process struct {
	id, execID    string
	pid           int
	spec          *specs.Process
	stdio         *client.Stdio
	consoleSocket string
}

// launch starts the monitor, on a terminal if the process has one.
func (r *Runtime) launch(ctx context.Context, p process) (*os.Process, error) {
	o := monitor.Options{
		Config: monitor.Config{Bundle: r.dir(p.id), ID: p.id, ExecID: p.execID, PID: p.pid},
		Args:   p.spec.Args, Stdio: p.stdio,
	}
	if p.spec.Terminal {
		slave, err := sendConsole(ctx, p.consoleSocket, p.spec.ConsoleSize)
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		o.Terminal = slave
	}
	return monitor.Launch(ctx, o)
}

func endMonitor(child *os.Process) error {
	err := child.Kill()
	_, waitErr := child.Wait()
	return errors.Join(err, waitErr)
}

// makeStdio makes a process's FIFOs, without stdin if it can never have input.
func (r *Runtime) makeStdio(id, name string, terminal bool) (*client.Stdio, error) {
	return client.MakeStdio(filepath.Join(r.dir(id), name), client.Wanted{
		Stdin: terminal || !isNull(os.Stdin), Stdout: true, Stderr: !terminal,
	})
}

// isNull reports whether a file is /dev/null.
func isNull(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true // closed
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

func (r *Runtime) program(id string) client.Program {
	return client.Program{Path: r.Program, ID: id, Bundle: r.dir(id), Debug: r.Debug}
}

func writePIDFile(path string, pid int) error {
	if path == "" {
		return nil
	}
	if err := replaceFile(path, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}
