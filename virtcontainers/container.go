package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/publish"
	"github.com/katabox/katabox/virtcontainers/standin"
)

// ContainerOptions say what container to create.
type ContainerOptions struct {
	ID     string
	Bundle *bundle.Bundle
	// Rootfs is mounted at the bundle's rootfs; empty when the engine has
	// mounted it.
	Rootfs   []*types.Mount
	Terminal bool
	IO       IO
}

// Container is one container of a sandbox. Its methods may be called from
// several goroutines.
type Container struct {
	ID      string
	Bundle  *bundle.Bundle
	sandbox *Sandbox
	init    *Process
	// created is closed when the engine knows the container: nothing about it
	// is reported before.
	created chan struct{}
	// files is used only by the container's creation and deletion, except for
	// what its exit copies back to the host.
	files *guestfs.Container
	// restored is what the container continues from; nil if it was made anew.
	restored *Restoration
	// published are the host's sockets that connect to the container's; only
	// its creation and deletion use them.
	published []*publish.Socket
	// standIn is nil until the container is about to be created, and then does
	// not change; nor does guestPID, the init's pid in the guest.
	standIn  atomic.Pointer[standin.Process]
	guestPID uint32

	// ended is closed, once, by awaitExecs: no exec waits for its reader any more.
	ended   chan struct{}
	endOnce sync.Once
	// turning is held while the container is paused or resumed, and locked before the
	// turnstile is passed: a checkpoint waits for all that have passed.
	turning ctxmutex.Mutex

	mu    sync.Mutex // guards execs
	execs map[string]*Process
}

// isPause reports whether the container is its pod's pause container rather
// than a workload.
func (c *Container) isPause() bool {
	place, err := bundle.Place(c.ID, c.Bundle.Spec.Annotations)
	return err == nil && place.Kind == bundle.Sandbox
}

func (c *Container) isCreated() bool { return closed(c.created) }

// PID returns the process id by which the host knows the container: its
// stand-in's, even after that has ended. It is 0 before the container is
// created.
func (c *Container) PID() int {
	if p := c.standIn.Load(); p != nil {
		return p.PID()
	}
	return 0
}

// Info returns the state of the container, that is, of its init.
func (c *Container) Info() ProcessInfo { return c.init.Info() }

// ExecOptions describe an exec: another process to run in a container.
type ExecOptions struct {
	ID       string
	Terminal bool
	// Spec is the process as the engine encoded it: the JSON of an OCI
	// Process.
	Spec *anypb.Any
	IO   IO
}

// Exec registers a process; Process.Start runs it.
func (c *Container) Exec(ctx context.Context, opts ExecOptions) (*Process, error) {
	if err := bundle.CheckID(opts.ID); err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", c.ID, err)
	}
	if state := c.init.Info().State; state != Created && state != Running {
		return nil, fmt.Errorf("exec in container %s: it is %s, want created or running: %w", c.ID, state, errdefs.ErrFailedPrecondition)
	}
	p := newProcess(c, opts.ID, opts.Terminal, opts.IO)
	if err := c.remember(p); err != nil {
		return nil, err
	}
	if err := p.registerOrForget(ctx, opts); err != nil {
		c.forget(p.execID)
		return nil, fmt.Errorf("exec in container %s: %w", c.ID, err)
	}
	return p, nil
}

func (c *Container) remember(p *Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.execs[p.execID]; taken {
		return fmt.Errorf("exec %s in container %s: %w", p.execID, c.ID, errdefs.ErrAlreadyExists)
	}
	c.execs[p.execID] = p
	return nil
}

func (c *Container) forget(execID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, execID)
}

// Process finds the init (execID "") or an exec.
func (c *Container) Process(execID string) (*Process, error) {
	if execID == "" {
		return c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.execs[execID]
	if !ok {
		return nil, fmt.Errorf("exec %s in container %s: %w", execID, c.ID, errdefs.ErrNotFound)
	}
	return p, nil
}

// processes lists the execs and then the init: the order in which they exit.
func (c *Container) processes() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Collect(maps.Values(c.execs)), c.init)
}

// Delete removes a container that has ended, or was never started, from the
// guest and from the sandbox. It may be called after the sandbox ended; while
// the sandbox ends, Delete waits for that, so that nothing is left afterwards. A
// second caller, such as an engine that died during its first call, waits for the
// first one, and gets the exit with ErrDeleted, or the first one's error.
func (c *Container) Delete(ctx context.Context) (_ Exit, err error) {
	leave, err := c.sandbox.sleeper.enter(ctx, "the deletion of container "+c.ID)
	if err != nil {
		return Exit{}, fmt.Errorf("delete container %s: %w", c.ID, err)
	}
	defer leave()
	if err := c.endUnstarted(ctx); err != nil {
		return Exit{}, err
	}
	if err := c.sandbox.awaitStop(ctx); err != nil {
		return Exit{}, err
	}
	exit, err := c.init.markDeleted(ctx)
	if err != nil {
		return exit, fmt.Errorf("delete container %s: %w", c.ID, err)
	}
	defer func() { c.init.setRemoved(err) }()
	<-c.init.reported // the engine hears of the exit first
	c.init.flush(ctx)
	c.settleExecs(ctx, anyExec)
	errs := []error{c.unpublish(ctx)}
	c.settleFiles(ctx)
	errs = append(errs, c.init.deleteInGuest(ctx), c.files.Release(ctx))
	for _, p := range c.processes() {
		p.io.Close()
	}
	c.awaitExecs(ctx)
	c.awaitEnds(ctx)
	c.sandbox.remove(c.ID)
	c.runPoststop(ctx)
	if err := errors.Join(errs...); err != nil {
		return exit, fmt.Errorf("delete container %s: %w", c.ID, err)
	}
	return exit, nil
}

// awaitEnds waits until the programs have ended that have got the output, which was
// closed.
func (c *Container) awaitEnds(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range c.processes() {
		all.Go(func() { p.io.AwaitEnds(ctx) })
	}
	all.Wait()
}

// endUnstarted kills an init that waits for a start that will not come.
func (c *Container) endUnstarted(ctx context.Context) error {
	if c.init.Info().State != Created {
		return nil
	}
	if err := c.init.Kill(ctx, sigkill, true); c.sandbox.ignoreGone(err) != nil {
		return err
	}
	_, err := c.init.Wait(ctx)
	return err
}
