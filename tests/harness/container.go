package harness

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/image"
)

// ContainerConfig describes a container to make.
type ContainerConfig struct {
	// Name is a readable word from which the id is made. ID, if set, is used
	// unchanged.
	Name, ID string
	// Image is image.Busybox when empty.
	Image string
	// Args is the init's command line; the image's when empty.
	Args []string
	Stdio
	// Runtime runs it; the daemon's when zero.
	Runtime Runtime
	// Sandbox is the containerd sandbox it belongs to, if any.
	Sandbox string
	// Parent is the committed snapshot that its own is made of; the image's
	// when empty.
	Parent string
	// Checkpoint is a directory with a checkpoint to continue from, if any.
	Checkpoint string
	// Spec changes the OCI spec last.
	Spec []oci.SpecOpts
}

// Container is a container with a task; the embedded Process is its init.
type Container struct {
	Process
	// Box is containerd's record of the container.
	Box client.Container
	// Task is its init as containerd's client sees it.
	Task   client.Task
	daemon *Daemon
	execs  int
}

// Create makes a container and its task; the task is not started. On an error
// nothing of the container is left in containerd's store.
func (d *Daemon) Create(ctx context.Context, cfg ContainerConfig) (*Container, error) {
	ctx = d.Context(ctx)
	box, err := d.newBox(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Container{Box: box, daemon: d}
	var opts []client.NewTaskOpts
	if cfg.Checkpoint != "" {
		opts = append(opts, client.WithRestoreImagePath(cfg.Checkpoint))
	}
	task, err := box.NewTask(ctx, c.creator(d, cfg.Stdio), opts...)
	if err != nil {
		err = fmt.Errorf("create task %s: %w", box.ID(), err)
		return nil, errors.Join(err, box.Delete(ctx, client.WithSnapshotCleanup))
	}
	c.Task, c.Process.Process = task, task
	return c, nil
}

// newBox stores a container with a fresh snapshot.
func (d *Daemon) newBox(ctx context.Context, cfg ContainerConfig) (client.Container, error) {
	if cfg.ID == "" {
		cfg.ID = d.NewID(cfg.Name)
	}
	if cfg.Image == "" {
		cfg.Image = image.Busybox
	}
	img, err := d.Client.GetImage(ctx, cfg.Image)
	if err != nil {
		return nil, fmt.Errorf("find image %s: %w", cfg.Image, err)
	}
	if cfg.Runtime.Type == "" {
		cfg.Runtime = d.options.Runtime
	}
	spec := []oci.SpecOpts{oci.WithImageConfig(img)}
	if len(cfg.Args) > 0 {
		spec = append(spec, oci.WithProcessArgs(cfg.Args...))
	}
	if cfg.TTY {
		spec = append(spec, oci.WithTTY)
	}
	snapshot := client.WithNewSnapshot(cfg.ID, img)
	if cfg.Parent != "" {
		// Else containerd may remove the snapshot before the container names it.
		leased, release, err := d.Client.WithLease(ctx)
		if err != nil {
			return nil, fmt.Errorf("make snapshot of %s: %w", cfg.Parent, err)
		}
		defer func() { _ = release(context.WithoutCancel(leased)) }() // it expires, too
		ctx = leased
		if _, err := d.Client.SnapshotService(d.Snapshotter).Prepare(ctx, cfg.ID, cfg.Parent); err != nil {
			return nil, fmt.Errorf("make snapshot of %s: %w", cfg.Parent, err)
		}
		snapshot = client.WithSnapshot(cfg.ID)
	}
	var more []client.NewContainerOpts
	if cfg.Sandbox != "" {
		more = append(more, client.WithSandbox(cfg.Sandbox))
	}
	box, err := d.Client.NewContainer(ctx, cfg.ID, append(more,
		client.WithImage(img),
		client.WithSnapshotter(d.Snapshotter),
		snapshot,
		client.WithRuntime(cfg.Runtime.Type, nil),
		client.WithNewSpec(append(spec, cfg.Spec...)...),
	)...)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", cfg.ID, err)
	}
	return box, nil
}

// Run makes a container, starts it, waits for its end and removes it. The
// container is returned for its output.
func (d *Daemon) Run(ctx context.Context, cfg ContainerConfig) (*Container, uint32, error) {
	c, err := d.Create(ctx, cfg)
	if err != nil {
		return nil, 0, err
	}
	code, err := c.Process.Run(d.Context(ctx))
	return c, code, errors.Join(err, c.Remove(ctx))
}

// Start starts the container's init.
func (c *Container) Start(ctx context.Context) error { return c.Process.Start(c.daemon.Context(ctx)) }

// Wait returns the exit code of the container's init.
func (c *Container) Wait(ctx context.Context) (uint32, error) {
	return c.Process.Wait(c.daemon.Context(ctx))
}

// ExecConfig describes a process to add to a running container.
type ExecConfig struct {
	Args []string
	Stdio
	// Runtime runs it; the daemon's when zero.
	Runtime Runtime
	// Spec changes the process, which otherwise is the container's init
	// with other arguments.
	Spec func(*specs.Process)
}

// Exec adds a process; it is not started.
func (c *Container) Exec(ctx context.Context, cfg ExecConfig) (*Process, error) {
	ctx = c.daemon.Context(ctx)
	spec, err := c.Box.Spec(ctx)
	if err != nil {
		return nil, fmt.Errorf("read spec of %s: %w", c.Box.ID(), err)
	}
	process := *spec.Process
	process.Args, process.Terminal = cfg.Args, cfg.TTY
	if cfg.Spec != nil {
		cfg.Spec(&process)
	}
	c.execs++
	id := fmt.Sprintf("e%d", c.execs)
	p := &Process{}
	p.Process, err = c.Task.Exec(ctx, id, &process, p.creator(c.daemon, cfg.Stdio))
	if err != nil {
		return nil, fmt.Errorf("exec %v in %s: %w", cfg.Args, c.Box.ID(), err)
	}
	return p, nil
}

// ExecRun adds a process, waits for its end and removes it.
func (c *Container) ExecRun(ctx context.Context, cfg ExecConfig) (*Process, uint32, error) {
	ctx = c.daemon.Context(ctx)
	p, err := c.Exec(ctx, cfg)
	if err != nil {
		return nil, 0, err
	}
	code, err := p.Run(ctx)
	return p, code, errors.Join(err, p.Remove(ctx))
}

// Remove kills the container if it still runs, and deletes its task, record
// and snapshot. Removing what is gone is no error.
func (c *Container) Remove(ctx context.Context) error {
	ctx = c.daemon.Context(ctx)
	return errors.Join(c.Process.Remove(ctx), deleteBox(ctx, c.Box))
}

func deleteBox(ctx context.Context, box client.Container) error {
	if err := box.Delete(ctx, client.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container %s: %w", box.ID(), err)
	}
	return nil
}

// removeContainers removes all containers that the daemon still has.
func (d *Daemon) removeContainers(ctx context.Context) error {
	boxes, err := d.Client.Containers(ctx)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, box := range boxes {
		if task, err := box.Task(ctx, nil); err == nil {
			_, err := task.Delete(ctx, client.WithProcessKill)
			errs = append(errs, err)
		}
		errs = append(errs, deleteBox(ctx, box))
	}
	return errors.Join(errs...)
}
