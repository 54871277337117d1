package virtcontainers

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// deletePause is the time between two tries to delete a process that was killed.
const deletePause = 50 * time.Millisecond

// deleteInGuest removes a process that has ended from the guest, and with an
// init its container.
func (p *Process) deleteInGuest(ctx context.Context) error {
	s := p.container.sandbox
	client, err := s.agent()
	if err != nil {
		return nil //nolint:nilerr // the guest and all in it is gone
	}
	_, err = client.Task.Delete(ctx, &task.DeleteRequest{ID: p.container.ID, ExecID: p.execID})
	if errdefs.IsFailedPrecondition(guest.Err(err)) && !p.wasLeft() {
		return p.deleteRunning(ctx, client)
	}
	return s.ignoreGone(guest.Err(err))
}

// deleteRunning removes a process that the guest still runs, although it has
// reported its exit. The process is killed first. A guest that keeps it all the
// same is lost: the engine has heard of the exit, and nothing of the process may
// be left.
func (p *Process) deleteRunning(ctx context.Context, client *guest.Client) error {
	s := p.container.sandbox
	timeout := s.killTimeout()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := client.Task.Kill(bounded, &task.KillRequest{ID: p.container.ID, ExecID: p.execID, Signal: sigkill, All: p.execID == ""})
	for err == nil || errdefs.IsFailedPrecondition(guest.Err(err)) || errdefs.IsNotFound(guest.Err(err)) {
		_, err = client.Task.Delete(bounded, &task.DeleteRequest{ID: p.container.ID, ExecID: p.execID})
		if !errdefs.IsFailedPrecondition(guest.Err(err)) {
			break
		}
		select {
		case <-bounded.Done():
		case <-time.After(deletePause):
			continue
		}
		break
	}
	if err = s.ignoreGone(guest.Err(err)); err == nil {
		return nil
	}
	s.lose(fmt.Errorf("the guest has reported the exit of %s, and does not end it within %v: %w", p.name(), timeout, err))
	return s.awaitStop(ctx)
}
