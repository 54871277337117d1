package virtcontainers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// Delete removes an exec. It fails for a running one, and waits for a start that is
// in progress: a client whose Start has ended with its deadline calls Delete
// immediately, and only once. A second caller waits for the first one, and gets the
// exit with ErrDeleted. A guest that did not report the exec's exit may refuse,
// because it still runs the exec, or not answer in time. That is logged.
func (p *Process) Delete(ctx context.Context) (_ Exit, err error) {
	if err := p.awaitStart(ctx); err != nil {
		return Exit{}, fmt.Errorf("delete %s: %w", p.name(), err)
	}
	exit, err := p.markDeleted(ctx)
	if err != nil {
		return exit, fmt.Errorf("delete %s: %w", p.name(), err)
	}
	defer func() { p.setRemoved(err) }()
	<-p.reported // the engine hears of the exit first
	p.flush(ctx)
	p.io.Close()
	p.container.forget(p.execID)
	defer p.io.AwaitEnds(ctx)
	if err = p.deleteInGuest(ctx); err == nil {
		return exit, nil
	}
	if p.wasLeft() {
		log.G(ctx).WithError(err).Warnf("%s is left in the guest until its container ends", p.name())
		return exit, nil
	}
	return exit, fmt.Errorf("delete %s: %w", p.name(), err)
}

// setRemoved ends what markDeleted began.
func (p *Process) setRemoved(err error) {
	p.removal = err
	close(p.removed)
}

// markDeleted moves a process to its last state. A process that was never
// started is stopped first, so that it can no longer be started. The caller then
// removes the process, and calls setRemoved. If another caller has come first,
// markDeleted waits for its end, and returns the exit with ErrDeleted or with that
// caller's error.
func (p *Process) markDeleted(ctx context.Context) (Exit, error) {
	exit, err := p.setDeleted()
	if !errors.Is(err, ErrDeleted) {
		return exit, err
	}
	select {
	case <-p.removed:
		return exit, cmp.Or(p.removal, err)
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for the deletion that another call began: %w", context.Cause(ctx))
	}
}

func (p *Process) setDeleted() (Exit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == Deleted {
		return p.exit, ErrDeleted
	}
	if p.state == Created && p.execID != "" && p.end != claimed {
		p.end, p.state = claimed, Stopped
		p.exit = Exit{ContainerID: p.container.ID, ExecID: p.execID, PID: p.container.PID(), At: time.Now()}
		close(p.known)
		close(p.done)
		close(p.reported)
	}
	state, err := p.state.next(Deleted)
	if err != nil {
		return Exit{}, err
	}
	p.state = state
	return p.exit, nil
}

// settleFiles waits until the host has answered what the processes, which have ended,
// asked about their files: a file that is read ahead may be on a slow disk. The guest
// must not unmount a file system before, and keeps them if that takes too long.
func (c *Container) settleFiles(ctx context.Context) {
	client, err := c.sandbox.agent()
	ctx = context.WithoutCancel(ctx)
	if err != nil || c.files.AwaitIdle(ctx) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(c.sandbox.killTimeout(), probeWait))
	defer cancel()
	if err := client.KeepMounts(ctx, c.ID); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("the guest unmounts the container's file systems before the host has answered all requests of their files")
		return
	}
	log.G(ctx).WithField("container", c.ID).Warn("the container's file systems stay mounted in the guest until it ends: " +
		"a file system of the host does not answer, or another container has a file of theirs open")
}

// deletePause is the time between two tries to delete a process that was killed.
const deletePause = 50 * time.Millisecond

// deleteTimeout bounds how long the guest may take to delete a process. A
// container's deletion writes back what its disks lack, and gets as much time as the
// operator allows for a creation. The pod's annotation does not count: a guest that
// answers pings and does not delete its containers could then not be removed.
func (p *Process) deleteTimeout() time.Duration {
	timeout := p.container.sandbox.killTimeout()
	if p.execID == "" {
		timeout = max(timeout, p.container.sandbox.opts.Config.WithoutAnnotations().Runtime.CreateContainerTimeout)
	}
	return timeout
}

// deleteInGuest removes a process that has ended from the guest, and with an
// init its container. That does not end with ctx: the files that the guest uses
// are taken from it next. A guest that does not delete a container in time, or
// answers nothing meanwhile, is lost.
func (p *Process) deleteInGuest(ctx context.Context) error {
	s := p.container.sandbox
	client, err := s.agent()
	if err != nil {
		return nil // the guest and all in it is gone
	}
	timeout := p.deleteTimeout()
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, fmt.Errorf("it had %v", timeout))
	defer cancel()
	if p.execID == "" {
		var stop func()
		bounded, stop = s.whileAnswers(bounded, client)
		defer stop()
	}
	_, err = client.Task().Delete(bounded, &task.DeleteRequest{ID: p.container.ID, ExecID: p.execID})
	switch {
	case errdefs.IsFailedPrecondition(guest.Err(err)) && !p.wasLeft():
		return p.deleteRunning(ctx, client)
	case !guest.Unanswered(bounded, err):
		return s.ignoreGone(guest.Err(err))
	}
	err = fmt.Errorf("the guest did not delete %s: %w", p.name(), cmp.Or(context.Cause(bounded), err))
	if p.execID != "" {
		p.leave()
		return err
	}
	s.lose(err)
	return s.awaitLoss(ctx)
}

// whileAnswers returns a context for a call that may take long. It ends with ctx,
// with stop, and when the guest leaves a question unanswered for as long as it
// may take for SIGKILL.
func (s *Sandbox) whileAnswers(ctx context.Context, client *guest.Client) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timeout := s.killTimeout()
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(timeout):
				if !answers(ctx, client, timeout) {
					cancel(fmt.Errorf("it answered nothing for %v", timeout))
				}
			case <-ctx.Done():
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		asking.Wait()
	}
}

// answers reports whether the guest answers in time, or ctx ends.
func answers(ctx context.Context, client *guest.Client, timeout time.Duration) bool {
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return !guest.Unanswered(asked, client.Ping(asked)) || ctx.Err() != nil
}

// deleteRunning removes a process that the guest still runs, although it has
// reported its exit. The process is killed first. A guest that does not delete it
// then is lost: the engine knows of the exit, and nothing of the process may be
// left. An exec whose start the guest did not answer is left to the end of its
// container: it is slow, and the guest has reported nothing that is wrong.
func (p *Process) deleteRunning(ctx context.Context, client *guest.Client) error {
	s := p.container.sandbox
	timeout := s.killTimeout()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := p.killAndDelete(bounded, client)
	for errdefs.IsFailedPrecondition(guest.Err(err)) && bounded.Err() == nil {
		select {
		case <-bounded.Done():
		case <-time.After(deletePause):
			err = p.killAndDelete(bounded, client)
		}
	}
	if err = s.ignoreGone(guest.Err(err)); err == nil {
		return nil
	}
	if p.wasUnanswered() {
		p.leave()
		return fmt.Errorf("the guest does not end %s within %v: %w", p.name(), timeout, err)
	}
	s.lose(fmt.Errorf("the guest has reported the exit of %s, and does not end it within %v: %w", p.name(), timeout, err))
	return s.awaitLoss(ctx)
}

// killAndDelete has the guest kill a process and delete it. The process may have ended,
// or not have begun: it gets the signal each time.
func (p *Process) killAndDelete(ctx context.Context, client *guest.Client) error {
	_, err := client.Task().Kill(ctx, &task.KillRequest{ID: p.container.ID, ExecID: p.execID, Signal: sigkill, All: p.execID == ""})
	if err == nil || errdefs.IsFailedPrecondition(guest.Err(err)) || errdefs.IsNotFound(guest.Err(err)) {
		_, err = client.Task().Delete(ctx, &task.DeleteRequest{ID: p.container.ID, ExecID: p.execID})
	}
	return err
}

// awaitLoss waits for the end of a sandbox that was just lost, even if ctx has
// ended.
func (s *Sandbox) awaitLoss(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWait)
	defer cancel()
	return s.awaitStop(ctx)
}
