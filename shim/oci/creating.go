package oci

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// isOf reports whether both are records of one container, not of two that have had one
// id after another.
func (rec *record) isOf(other *record) bool { return rec.Created.Equal(other.Created) }

// deleteCreating removes a container that is being created, with force: it ends the
// creation first, which leaves nothing unless it ends with a success, or was killed.
func (r *Runtime) deleteCreating(ctx context.Context, rec *record, force bool) error {
	if !force {
		return errNotStopped(rec.ID, Creating)
	}
	if err := endCreator(rec.Creator); err != nil {
		return fmt.Errorf("end the creation of container %s: %w", rec.ID, err)
	}
	now, err := r.load(rec.ID)
	switch {
	case errdefs.IsNotFound(err):
		return r.removeUnfinished(rec.ID)
	case err != nil:
		return err
	case !now.isOf(rec): // another has the id by now
		return nil
	}
	return r.deleteCreated(ctx, now, force)
}

// endCreator ends a process that creates a container. It undoes what it has done, which
// is bounded; one that hangs is killed. A process that was stopped goes on for that.
func endCreator(p persist.Process) error {
	err := errors.Join(p.Signal(unix.SIGTERM), p.Signal(unix.SIGCONT))
	if p.Await(undoTimeout) == nil {
		return nil
	}
	return errors.Join(err, p.Kill(monitorsDie))
}

// removeOwn removes the directory of a creation that has failed. A delete may have
// removed it already, and another create may have made one of that name since.
func (r *Runtime) removeOwn(rec *record) error {
	now, err := r.load(rec.ID)
	if errdefs.IsNotFound(err) || err == nil && !now.isOf(rec) {
		return nil
	}
	return r.removeDir(rec.ID)
}
