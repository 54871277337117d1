package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// createOrDiscard makes the container in the guest. If the guest does not answer in
// time, it may have made the container, or be about to: createOrDiscard removes it.
func (c *Container) createOrDiscard(ctx context.Context, opts ContainerOptions) error {
	err := c.createInGuest(ctx, opts)
	if !guest.Unanswered(ctx, err) || c.sandbox.gone() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return errors.Join(err, c.discardLate(ctx))
}

// beginWait is how long a guest that does not know a container may still begin to make
// it: a call that was given up at once may come after the next one.
const beginWait = 500 * time.Millisecond

// discardLate is discard for a container that the guest may not have, be about to make,
// or still be making.
func (c *Container) discardLate(ctx context.Context) error {
	for began := time.Now(); ; {
		err := c.discard(ctx)
		unknown := errdefs.IsNotFound(err)
		switch {
		case err == nil || unknown && time.Since(began) >= beginWait:
			return nil
		case unknown:
		case !errdefs.IsFailedPrecondition(err):
			return fmt.Errorf("remove the unfinished container from the guest: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the unfinished container from the guest: %w", err)
		case <-time.After(deletePause):
		}
	}
}

// discard removes from the guest a container that was created but will not be
// used. It waits for the event of its exit too: another container may have its id
// next.
func (c *Container) discard(ctx context.Context) error {
	if c.sandbox.gone() {
		return nil
	}
	client := c.sandbox.client
	if _, err := client.Task().Kill(ctx, &task.KillRequest{ID: c.ID, Signal: sigkill, All: true}); err != nil && !errdefs.IsNotFound(guest.Err(err)) {
		return guest.Err(err)
	}
	if _, err := client.Task().Wait(ctx, &task.WaitRequest{ID: c.ID}); err != nil {
		return guest.Err(err)
	}
	c.awaitEvent(ctx)
	c.settleFiles(ctx)
	_, err := client.Task().Delete(ctx, &task.DeleteRequest{ID: c.ID})
	return guest.Err(err)
}

// eventWait bounds the wait for the event of an exit that the guest has answered to
// Wait.
const eventWait = 2 * time.Second

func (c *Container) awaitEvent(ctx context.Context) {
	select {
	case <-c.init.heard:
	case <-time.After(eventWait):
		log.G(ctx).WithField("container", c.ID).Warnf("the guest did not report the exit of a container within %v of its end", eventWait)
	case <-ctx.Done():
	}
}

// registerOrForget announces an exec to the agent. If the guest does not answer in
// time, it may know the exec anyway: registerOrForget removes it.
func (p *Process) registerOrForget(ctx context.Context, opts ExecOptions) error {
	err := p.register(ctx, opts.Spec)
	s := p.container.sandbox
	if !guest.Unanswered(ctx, err) || s.gone() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWait)
	defer cancel()
	_, late := s.client.Task().Delete(ctx, &task.DeleteRequest{ID: p.container.ID, ExecID: p.execID})
	if late = guest.Err(late); late == nil || errdefs.IsNotFound(late) {
		return err
	}
	return errors.Join(err, fmt.Errorf("have the guest forget it: %w", late))
}
