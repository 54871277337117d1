package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/stream"
	"github.com/katabox/katabox/internal/ctxmutex"
)

// create makes a container with its init waiting to be started, and returns
// the init's PID. On failure nothing is left.
func (p *Pod) create(ctx context.Context, req *taskapi.CreateTaskRequest) (uint32, error) {
	if err := checkID("container", req.GetID()); err != nil {
		return 0, err
	}
	defer p.config.Spans.Begin(req.GetID(), "create")()
	config, spec, err := decodeConfig(req.GetOptions())
	if err != nil {
		return 0, fmt.Errorf("container %s: %w", req.GetID(), err)
	}
	at, err := p.place(req.GetID(), config)
	if err != nil {
		return 0, err
	}
	defer at.Close()
	t, err := p.newTask(req, config)
	if err != nil {
		return 0, err
	}
	if err := p.prepare(ctx, t, spec, config); err != nil {
		return 0, errors.Join(fmt.Errorf("container %s: %w", t.id, err), p.abandon(t, nil))
	}
	ctr, proc, err := p.config.Runtime.Create(spec, at, childStdio(t.init.stdio))
	if err != nil {
		return 0, errors.Join(err, p.abandon(t, t.storages))
	}
	return p.created(ctx, t, ctr, proc)
}

// prepare adds a container's devices and mounts its storages. A failure leaves
// nothing mounted.
func (p *Pod) prepare(ctx context.Context, t *task, spec *specs.Spec, config *api.ContainerConfig) error {
	defer p.config.Spans.Begin(t.id.String(), "storages")()
	if err := p.addDevices(ctx, spec, config.GetDevices()); err != nil {
		return err
	}
	return p.mountStorages(ctx, t.storages)
}

// newTask reserves the id of a new container. From then on the host may bind
// its streams.
func (p *Pod) newTask(req *taskapi.CreateTaskRequest, config *api.ContainerConfig) (*task, error) {
	stdio, err := stream.New(stream.Request{
		Terminal: req.GetTerminal(),
		Stdin:    req.GetStdin() != "", Stdout: req.GetStdout() != "", Stderr: req.GetStderr() != "",
	})
	if err != nil {
		return nil, err
	}
	id := newID(req.GetID())
	t := &task{
		id: id, storages: config.GetStorages(),
		init:  newProcess(id, "", stdio),
		execs: map[string]*process{}, turning: ctxmutex.New(),
	}
	if err := p.add(t); err != nil {
		stdio.Child().Close()
		stdio.Close()
		return nil, err
	}
	return t, nil
}

// abandon undoes newTask and the mounts.
func (p *Pod) abandon(t *task, mounted []*api.Storage) error {
	t.init.stdio.Child().Close()
	t.init.stdio.Close()
	err := p.disks.Unmount(mounted)
	p.remove(t)
	t.init.failed() // Wakes callers that already wait for it.
	return err
}

// created takes over a container that the runtime has made. If the host's deadline has
// passed meanwhile, the host does not know of the container, and it is removed.
func (p *Pod) created(ctx context.Context, t *task, ctr Container, proc Process) (uint32, error) {
	t.mu.Lock()
	t.ctr = ctr
	t.mu.Unlock()
	err := adopt(t.init.stdio, proc)
	if err == nil {
		err = p.pinFirst(t, uint32(proc.Pid()))
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("container %s was made too late for the host: %w", t.id, context.Cause(ctx))
	}
	if err == nil {
		err = t.init.begun(proc, created)
	}
	if err != nil {
		_ = proc.Signal(unix.SIGKILL)
		proc.Wait()
		err = errors.Join(err, p.destroy(t, ctr))
		p.remove(t)
		t.init.failed() // Wakes callers that already wait for it.
		return 0, err
	}
	ctx = context.WithoutCancel(ctx)
	p.watchers.Go(func() { p.watchInit(ctx, t, proc) })
	log.G(ctx).WithFields(log.Fields{"container": t.id.String(), "pid": proc.Pid()}).Info("container created")
	return uint32(proc.Pid()), nil
}

func decodeConfig(options *anypb.Any) (*api.ContainerConfig, *specs.Spec, error) {
	if options.GetTypeUrl() != api.ContainerConfigTypeURL {
		return nil, nil, fmt.Errorf("options are %q, want %s: %w", options.GetTypeUrl(), api.ContainerConfigTypeURL, errdefs.ErrInvalidArgument)
	}
	var config api.ContainerConfig
	if err := proto.Unmarshal(options.GetValue(), &config); err != nil {
		return nil, nil, fmt.Errorf("decode options: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	var spec specs.Spec
	if err := json.Unmarshal(config.GetSpec(), &spec); err != nil {
		return nil, nil, fmt.Errorf("decode spec: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return &config, &spec, nil
}

// start starts a created container's init, or an exec.
func (p *Pod) start(ctx context.Context, id, execID string) (uint32, error) {
	t, proc, err := p.process(id, execID)
	if err != nil {
		return 0, err
	}
	if err := proc.bound(); err != nil {
		return 0, err
	}
	if execID != "" {
		return p.startExec(ctx, t, proc)
	}
	ctr, err := t.container()
	if err != nil {
		return 0, err
	}
	if err := proc.move("start", starting, created); err != nil {
		return 0, err
	}
	defer p.config.Spans.Begin(id, "start")()
	if err := ctr.Start(); err != nil {
		_ = ctr.Kill() // What cannot start must not linger; its exit is reported.
		return 0, err
	}
	_ = proc.move("start", running, starting) // It may already have ended.
	if p.hasPod() {
		p.late.Do(func() { p.watchers.Go(func() { p.loadLateDrivers(context.WithoutCancel(ctx)) }) })
	}
	return proc.pid(), nil
}
