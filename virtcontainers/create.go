package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/hook"
	"github.com/katabox/katabox/virtcontainers/sizing"
)

// CheckSpec returns the error with which Create would refuse a container
// because of its spec: errdefs.ErrInvalidArgument, with the field's name. The
// shim calls it for a pod's first container before it boots a machine. first
// means that the spec is that of the sandbox's own container.
func CheckSpec(spec *specs.Spec, cfg *config.Config, first bool) error {
	if err := hook.Check(spec); err != nil {
		return err
	}
	return guestfs.CheckSpec(spec, cfg, first)
}

// Create makes a container in the sandbox: its process waits for Start. It
// calls announce before anything else of the container is reported. ctx
// bounds it. On an error nothing of the container is left.
func (s *Sandbox) Create(ctx context.Context, opts ContainerOptions, announce func(*Container)) (*Container, error) {
	if err := bundle.CheckID(opts.ID); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	completed, err := s.opts.complete(opts.Bundle)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", opts.ID, err)
	}
	opts.Bundle = completed
	c := &Container{
		ID: opts.ID, Bundle: opts.Bundle, sandbox: s,
		files: s.files.Container(guestfs.Request{ID: opts.ID, Bundle: opts.Bundle, Rootfs: opts.Rootfs}),
		ended: make(chan struct{}), created: make(chan struct{}), turning: ctxmutex.New(), execs: make(map[string]*Process),
	}
	if c.restored = s.opts.Restore.of(opts.ID); c.restored != nil {
		c.files = c.restored.files
	}
	c.init = newProcess(c, "", opts.Terminal, opts.IO)
	if err := CheckSpec(opts.Bundle.Spec, s.opts.Config, opts.ID == s.ID); err != nil {
		return nil, fmt.Errorf("create container %s: %w", opts.ID, err)
	}
	leave, err := s.sleeper.enter(ctx, "the creation of container "+opts.ID)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", opts.ID, err)
	}
	defer leave()
	if err := s.add(c); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	if err := s.create(ctx, c, opts, announce); err != nil {
		c.init.claimExit() // the engine does not know it: no exit is reported
		c.runPoststop(ctx)
		s.sizing.Release(opts.ID) // before another container may have the ID
		s.remove(opts.ID)
		close(c.created)
		return nil, fmt.Errorf("create container %s: %w", opts.ID, err)
	}
	return c, nil
}

// create runs the container's own list of steps; it is unwound like a boot.
func (s *Sandbox) create(ctx context.Context, c *Container, opts ContainerOptions, announce func(*Container)) error {
	ctx, stop := s.whileAlive(ctx)
	defer stop()
	defer s.timed(c.ID, createSpan, createAction)()
	b := boot{failAt: s.platform.Failpoint, recorder: s.recorder, container: c.ID}
	err := b.run(ctx, slices.Concat(c.fileSteps(), c.sizeSteps(), []step{
		{"create", func(ctx context.Context) error { return c.createOrDiscard(ctx, opts) }, c.discard},
		{"limits", func(ctx context.Context) error { return c.limitRestored(ctx) }, nil},
		{"standin", func(ctx context.Context) error { return s.standIns.add(ctx, c) }, c.endStandIn},
		{"sockets", func(ctx context.Context) error { return c.publishSockets(ctx) }, c.unpublish},
		{"hooks", func(ctx context.Context) error { return c.runCreateHooks(ctx) }, nil},
		{"streams", func(ctx context.Context) error { return c.init.connect(ctx) }, func(context.Context) error {
			c.init.io.Close()
			return nil
		}},
	}))
	if err == nil {
		if err = s.makeKnown(c, announce); err != nil {
			err = errors.Join(err, b.unwind(ctx))
		}
	}
	if err != nil {
		return s.explainIfGone(ctx, err)
	}
	log.G(ctx).WithFields(b.fields()).WithField("container", c.ID).Info("container created")
	return nil
}

// fileSteps bring the container's files into the guest. Those of a restored one are
// there.
func (c *Container) fileSteps() (steps []step) {
	if c.restored != nil {
		return []step{{"files", func(context.Context) error { return nil }, c.files.Release}}
	}
	for _, part := range c.files.Steps() {
		steps = append(steps, step{part.Name, part.Do, nil})
	}
	steps[0].undo = c.files.Release // of all of them
	return steps
}

// sizeSteps make the machine large enough for the container, and reserve the pod's huge
// pages in the memory that it then has.
func (c *Container) sizeSteps() []step {
	var pages []specs.LinuxHugepageLimit
	return []step{
		{"size", func(ctx context.Context) (err error) {
			pages, err = c.sandbox.sizing.Admit(ctx, sizing.Container{
				ID: c.ID, Name: bundle.ContainerName(c.Bundle.Spec.Annotations), Spec: c.Bundle.Spec, Pause: c.isPause(),
			})
			return err
		}, nil},
		{"hugepages", func(ctx context.Context) error {
			c.reserveHugepages(ctx, pages)
			return nil
		}, nil},
	}
}

// reserveHugepages reserves the pod's huge pages, if the container may use them. A guest
// with fewer is no error: the spec did not ask for them, and programs may do without.
func (c *Container) reserveHugepages(ctx context.Context, pages []specs.LinuxHugepageLimit) {
	if c.isPause() || c.restored != nil {
		return
	}
	if err := c.files.ReservePodHugepages(ctx, pages); err != nil {
		log.G(ctx).WithError(err).WithField("container", c.ID).Warn("the guest has fewer huge pages than the pod's limits allow")
	}
}

func (c *Container) createInGuest(ctx context.Context, opts ContainerOptions) error {
	if c.restored != nil {
		c.guestPID = c.restored.from.Record.Container.PID
		c.files.Created()
		return nil
	}
	spec, err := c.files.Spec()
	if err != nil {
		return err
	}
	c.warnOfLost(ctx, spec.Dropped)
	if spec.Unconfined {
		log.G(ctx).WithField("container", c.ID).Info("the container's seccomp profile is not applied: runtime.disable_guest_seccomp is true")
	}
	config := configOf(spec)
	config.PidNamespaceOf = c.pidNamespaceOf(ctx, spec.PIDOf)
	req := &task.CreateTaskRequest{ID: c.ID, Terminal: opts.Terminal}
	req.Stdin, req.Stdout, req.Stderr = streamNames(opts.IO.Streams())
	if c.guestPID, err = createTask(ctx, c.sandbox.client, req, config); err != nil {
		return c.files.Explain(err)
	}
	c.files.Created()
	return nil
}

// configOf returns a container's configuration for the agent, without the PID
// namespace of another container.
func configOf(spec *guestfs.Spec) *api.ContainerConfig {
	return &api.ContainerConfig{
		Spec: spec.JSON, SharePidNamespace: spec.SharePID, ShareUserNamespace: spec.ShareUser, OwnUtsNamespace: spec.OwnUTS,
		Storages: spec.Storages, Devices: spec.Devices,
	}
}

// createTask has the agent make a container, and returns its process's id in the
// guest.
func createTask(ctx context.Context, client *guest.Client, req *task.CreateTaskRequest, config *api.ContainerConfig) (uint32, error) {
	value, err := proto.Marshal(config)
	if err != nil {
		return 0, fmt.Errorf("encode container: %w", err)
	}
	req.Options = &anypb.Any{TypeUrl: api.ContainerConfigTypeURL, Value: value}
	resp, err := client.Task().Create(ctx, req)
	if err != nil {
		return 0, guest.Err(err)
	}
	return resp.GetPid(), nil
}
