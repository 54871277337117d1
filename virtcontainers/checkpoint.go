package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// A checkpoint is the whole machine of a sandbox with one container. What belongs
// to this process and not to the machine is taken from it before, and given back
// afterwards: the NICs, and the vsock device with all connections. The guest parks
// its processes' stdio meanwhile, whose processes are frozen.
//
//	lock calls ─ freeze ─ park stdio ─ unplug ─ save ─ plug ─ relink ─ bind stdio ─ thaw ─ let calls pass

const (
	// partWait bounds each of the guest's parts in giving up its devices.
	partWait = 30 * time.Second
	// detachWait bounds how long the guest may take to give up a device that is
	// wanted back: the container stands still meanwhile.
	detachWait = 10 * time.Second
	// saveTime is how long writing a machine to disk may take, however small it is,
	// and saveRate how fast, in bytes a second, the disk of a larger one must be.
	saveTime = 10 * time.Minute
	saveRate = 8 << 20
)

// saveTimeout bounds writing a machine of that many bytes to disk.
func saveTimeout(most int64) time.Duration {
	return saveTime + time.Duration(most/saveRate)*time.Second
}

// CheckpointOptions say how to save a container.
type CheckpointOptions struct {
	// Dir is the directory for checkpoint.File, made if it is missing.
	Dir string
	// Exit ends the container once it is saved, as if by SIGKILL.
	Exit bool
}

// Checkpoint saves a container, which must be its sandbox's only one, with its
// machine. Afterwards, and after an error, the container continues to run, unless
// opts.Exit is set and there was no error. ctx bounds the call. It fails with
// errdefs.ErrFailedPrecondition for a container that cannot be saved, or that ended
// before it was saved with opts.Exit, and with
// errdefs.ErrUnavailable if the guest has calls to answer.
func (c *Container) Checkpoint(ctx context.Context, opts CheckpointOptions) error {
	began := time.Now()
	size, err := c.checkpoint(ctx, opts)
	if err != nil {
		return fmt.Errorf("checkpoint container %s: %w", c.ID, err)
	}
	log.G(ctx).WithFields(log.Fields{"container": c.ID, "bytes": size, "t_checkpoint": milliseconds(time.Since(began))}).Info("container saved")
	return nil
}

func (c *Container) checkpoint(ctx context.Context, opts CheckpointOptions) (size int64, err error) {
	key, err := checkpointKey(ctx, c.sandbox.opts.Config.Runtime.CheckpointKeyFile)
	if err != nil {
		return 0, err
	}
	open, err := c.sandbox.holdCalls(ctx)
	if err != nil {
		return 0, err
	}
	defer open()
	size, err = c.saveQuiet(guest.WithoutPass(ctx), key, opts)
	if err == nil && key == nil {
		log.G(ctx).WithField("container", c.ID).Warn("the checkpoint is not encrypted, and others may read it where the engine puts it: runtime.checkpoint_key_file is empty")
	}
	open()
	c.sandbox.reopenResolvers(ctx)
	return size, err
}

// reopenResolvers forwards the resolvers again whose forwarding ended with the
// network. They live on, so their calls are like others.
func (s *Sandbox) reopenResolvers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partWait)
	defer cancel()
	for _, path := range s.resolvConfs() {
		s.network.OpenResolvers(ctx, path)
	}
}

// holdCalls has calls to the guest wait until open, once those under way have
// ended.
func (s *Sandbox) holdCalls(ctx context.Context) (open func(), err error) {
	if err := s.Wake(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	if err := s.sleeper.lock(ctx, nil); err != nil {
		return nil, err
	}
	return sync.OnceFunc(s.sleeper.open), nil
}

// saveQuiet saves the container while nothing else calls the guest. An error leaves
// no file, unless the machine is lost after it was saved. A SIGKILL for the container
// ends that: writing its memory may take long, or hang with the disk, and the guest may
// not answer.
func (c *Container) saveQuiet(ctx context.Context, key checkpoint.Key, opts CheckpointOptions) (size int64, err error) {
	ctx, stop := c.init.unlessDoomed(ctx)
	defer stop()
	thaw, err := c.freeze(ctx)
	if err != nil {
		return 0, err
	}
	to := &saving{key: key, most: mostStateBytes(c.sandbox.mostMiB())}
	err = c.saveFrozen(ctx, to, opts)
	if err = errors.Join(err, thaw()); err == nil {
		return to.size, nil
	}
	if to.complete && c.sandbox.gone() {
		return 0, fmt.Errorf("it ended after it was saved in %s: %w", to.file.path, err)
	}
	return 0, errors.Join(err, to.remove())
}

// saveFrozen saves the container whose processes stand still.
func (c *Container) saveFrozen(ctx context.Context, to *saving, opts CheckpointOptions) (err error) {
	if to.record, err = c.describe(ctx); err != nil {
		return err
	}
	if err := to.create(ctx, opts.Dir); err != nil {
		return err
	}
	return c.saveInto(ctx, to, opts.Exit)
}

// freeze stops the container's processes in the guest, unless the engine has
// paused them; thaw undoes it, and leaves a container that has ended.
func (c *Container) freeze(ctx context.Context) (thaw func() error, err error) {
	client, err := c.sandbox.agent()
	if err != nil {
		return nil, err
	}
	switch state := c.init.Info().State; state {
	case Paused:
		return func() error { return nil }, nil
	case Running:
	default:
		return nil, fmt.Errorf("it is %s, want running or paused: %w", state, errdefs.ErrFailedPrecondition)
	}
	if err := c.pauseInGuest(ctx, client); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("have its processes stand still: %w", context.Cause(ctx))
		}
		return nil, guest.Err(err)
	}
	return func() error { return c.thaw(ctx, client) }, nil
}

// thaw lets the container's processes run, which may have ended, or run already.
func (c *Container) thaw(ctx context.Context, client *guest.Client) error {
	ended := func() bool { return c.sandbox.gone() || closed(c.init.known) }
	if ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partWait)
	defer cancel()
	_, err := client.Task().Resume(ctx, &task.ResumeRequest{ID: c.ID})
	if err == nil {
		return nil
	}
	refused := errdefs.IsFailedPrecondition(guest.Err(err))
	if ended() || c.isInGuest(ctx, client, tasktypes.Status_STOPPED) || refused && c.isInGuest(ctx, client, tasktypes.Status_RUNNING) {
		return nil
	}
	return fmt.Errorf("let its processes run: %w", guest.Err(err))
}

// saveInto saves the machine, and lets it go on, or ends the container.
func (c *Container) saveInto(ctx context.Context, to *saving, exit bool) error {
	taken, err := c.saveStanding(ctx, to)
	if err == nil && exit && closed(c.init.heard) {
		// Its own exit is reported, not that of a container that was saved.
		err = fmt.Errorf("it ended before it was saved: %w", errdefs.ErrFailedPrecondition)
	}
	if err == nil && exit {
		c.endSaved(ctx)
		return nil
	}
	if goErr := c.goOn(ctx, taken); goErr != nil {
		lost := fmt.Errorf("the machine did not resume after it was saved: %w", goErr)
		c.sandbox.lose(lost)
		_ = c.init.io.Rebind(Conns{}) // otherwise the engine waits for the end of the output
		return errors.Join(err, lost)
	}
	return err
}

// saveStanding takes from the machine what belongs to this process, and saves it.
func (c *Container) saveStanding(ctx context.Context, to *saving) (taken part, err error) {
	ctx, stop := c.sandbox.whileAlive(ctx)
	defer stop()
	if taken, err = c.standStill(ctx); err == nil {
		to.record.Machine.Layout, err = c.sandbox.vm.Layout(ctx)
	}
	if err == nil {
		limit := saveTimeout(to.most)
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not written within %v", limit))
		defer cancel()
		if err := to.save(ctx, c.sandbox.vm); err != nil {
			return taken, c.sandbox.files.ExplainState(err)
		}
		return taken, nil
	}
	return taken, err
}

// part is how far the machine was taken apart: each includes those before it.
type part int

const (
	none part = iota
	stdioParked
	networkUnplugged
	linkSuspended
	vsockDetached
)

// standStill parks the container's stdio, and takes from the machine the devices
// that belong to this process. It returns how far it came, or began to come.
func (c *Container) standStill(ctx context.Context) (taken part, err error) {
	s := c.sandbox
	for _, next := range []struct {
		begins, ends part
		what         string
		do           func(context.Context) error
	}{
		{stdioParked, stdioParked, "park its input and output", c.park},
		{networkUnplugged, networkUnplugged, "take the network from the machine", s.network.Unplug},
		{linkSuspended, vsockDetached, "take the vsock device from the machine", func(ctx context.Context) error {
			s.client.Suspend()
			return s.transport.Detach(ctx, s.vm)
		}},
	} {
		ctx, cancel := context.WithTimeout(ctx, partWait)
		err := next.do(ctx)
		cancel()
		if errors.Is(err, errUnchanged) {
			return taken, fmt.Errorf("%s: %w", next.what, err)
		}
		if err != nil {
			return next.begins, fmt.Errorf("%s: %w", next.what, err)
		}
		taken = next.ends
	}
	return taken, nil
}

// errUnchanged means that a part of standStill has not begun: there is nothing to
// give back.
var errUnchanged = errors.New("refused")

// park has the stdio of the container's init wait, at both ends.
func (c *Container) park(ctx context.Context) error {
	// Once begun it is not given up: what is parked at one end only is lost.
	ctx, stop := c.sandbox.whileAlive(context.WithoutCancel(ctx))
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	bytes, bound, err := c.init.io.Park(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnchanged, err)
	}
	var inputs []*api.ParkedInput
	if bound {
		inputs = []*api.ParkedInput{{ContainerId: c.ID, Bytes: bytes}}
	}
	return c.sandbox.client.Park(ctx, inputs)
}

// goOn gives the machine back what standStill has taken.
func (c *Container) goOn(ctx context.Context, taken part) error {
	s := c.sandbox
	ctx, stop := s.whileAlive(context.WithoutCancel(ctx))
	defer stop()
	if err := s.reconnect(ctx, taken); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	if taken >= stdioParked {
		if err := c.rebind(ctx); err != nil {
			return fmt.Errorf("bind its input and output again: %w", err)
		}
	}
	if taken >= networkUnplugged {
		if err := s.replugNetwork(ctx); err != nil {
			log.G(ctx).WithError(err).Error("the guest lacks a part of its network since it was saved")
		}
	}
	return nil
}

// replugNetwork gives the machine its NICs again. A removal that was given up goes
// on in the guest, and would take them later: it is awaited first.
func (s *Sandbox) replugNetwork(ctx context.Context) error {
	unplugCtx, cancel := context.WithTimeout(ctx, detachWait)
	defer cancel()
	return errors.Join(s.network.Unplug(unplugCtx), s.network.Replug(ctx))
}

// reconnect gives the machine its vsock device again and lets it run.
func (s *Sandbox) reconnect(ctx context.Context, taken part) error {
	if taken == linkSuspended && s.detachAfterAll(ctx) {
		taken = vsockDetached
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if taken >= vsockDetached {
		if err := s.transport.Attach(ctx, s.vm); err != nil {
			return err
		}
	}
	if err := s.vm.Resume(ctx); err != nil {
		return err
	}
	if taken < linkSuspended {
		return nil
	}
	if err := s.client.Relink(ctx); err != nil {
		return s.explain(ctx, err)
	}
	if err := s.setClock(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("the guest's clock is late by the time that the sandbox was saved")
	}
	return nil
}

// detachAfterAll awaits a removal of the vsock device that was given up, as
// replugNetwork does, and reports whether the guest has lost it.
func (m *machine) detachAfterAll(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, detachWait)
	defer cancel()
	err := m.transport.Detach(ctx, m.vm)
	if err != nil {
		log.G(ctx).WithError(err).Warn("the guest keeps its vsock device")
	}
	return err == nil
}

// rebind gives the init's stdio new connections.
func (c *Container) rebind(ctx context.Context) error {
	conns, err := c.sandbox.openConns(ctx, c.ID, "", c.init.io.Streams())
	if err != nil {
		return err
	}
	return c.init.io.Rebind(conns)
}

// endSaved ends the container that was saved, and its sandbox. What it has written
// is passed on first: what continues from it does not write that again.
func (c *Container) endSaved(ctx context.Context) {
	s := c.sandbox
	_ = c.init.io.Rebind(Conns{}) // the end of its output
	c.init.io.Drain(ctx, math.MaxUint64, math.MaxUint64)
	s.mu.Lock()
	if s.lost == nil {
		s.lost = errors.New("it was saved, and ended as asked for")
	}
	s.mu.Unlock()
	c.init.settle(Exit{Status: ExitKilled, At: time.Now()}, true)
}
