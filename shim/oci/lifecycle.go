package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

// errNotRunning is the error for a container that has ended. Docker's shim matches
// these words.
var errNotRunning = errors.New("container not running")

// callTimeout bounds a call to the shim.
const callTimeout = time.Minute

// with calls the shim of a container, which must exist.
func (r *Runtime) with(ctx context.Context, id string, call func(context.Context, *record, *client.Shim) error) error {
	return r.within(ctx, callTimeout, id, call)
}

// within is with for calls that may take as long as timeout.
func (r *Runtime) within(ctx context.Context, timeout time.Duration, id string, call func(context.Context, *record, *client.Shim) error) error {
	rec, err := r.load(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	shim, err := client.Connect(ctx, r.dir(id))
	if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return fmt.Errorf("%w: %w: %w", errNotRunning, err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return err
	}
	defer shim.Close()
	return call(ctx, rec, shim)
}

// Start runs a created container's process.
func (r *Runtime) Start(ctx context.Context, id string) error {
	return r.with(ctx, id, func(ctx context.Context, rec *record, shim *client.Shim) error {
		status, err := status(ctx, shim, rec)
		switch {
		case err != nil:
			return err
		case status == Creating:
			return fmt.Errorf("cannot start a container that is being created: %w", errdefs.ErrFailedPrecondition)
		case status == Stopped:
			return fmt.Errorf("cannot start a container that has stopped: %w", errdefs.ErrFailedPrecondition)
		case status != Created:
			return fmt.Errorf("cannot start an already running container: %w", errdefs.ErrFailedPrecondition)
		}
		_, err = shim.Start(ctx, &task.StartRequest{ID: id})
		return err
	})
}

// Kill sends a signal to a container's init; all sends it to all its processes, and
// then it is not an error if the container has ended, as with runc. A container whose
// monitor still waits for the reader of its output has not ended to the engine: the
// monitor gets the signal. It hears of a SIGKILL in any case: the container may have
// exited by itself, although the shim holds that back for the reader.
func (r *Runtime) Kill(ctx context.Context, id string, signal uint32, all bool) error {
	err := r.with(ctx, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		_, err := shim.Kill(ctx, &task.KillRequest{ID: id, Signal: signal, All: all})
		if errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
			return fmt.Errorf("%w: %w", errNotRunning, err)
		}
		return err
	})
	ended := errors.Is(err, errNotRunning)
	if !ended && (err != nil || unix.Signal(signal) != unix.SIGKILL) {
		return err
	}
	if rec, loadErr := r.load(id); loadErr == nil && rec.Monitor.Alive() {
		return hurryMonitor(rec.Monitor, unix.Signal(signal))
	}
	if ended && all {
		return nil
	}
	return err
}

// Pause freezes a container.
func (r *Runtime) Pause(ctx context.Context, id string) error {
	return r.with(ctx, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		_, err := shim.Pause(ctx, &task.PauseRequest{ID: id})
		return err
	})
}

// Resume lets a paused container run.
func (r *Runtime) Resume(ctx context.Context, id string) error {
	return r.with(ctx, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		_, err := shim.Resume(ctx, &task.ResumeRequest{ID: id})
		return err
	})
}

// Delete removes a container that has stopped or was never started; with force it
// kills the container first, ends its creation, and succeeds if it does not exist.
func (r *Runtime) Delete(ctx context.Context, id string, force bool) error {
	rec, err := r.load(id)
	if errdefs.IsNotFound(err) {
		removeErr := r.removeUnfinished(id)
		if force {
			return removeErr
		}
		return errors.Join(err, removeErr)
	}
	if err != nil {
		return err
	}
	if rec.creating {
		return r.deleteCreating(ctx, rec, force)
	}
	return r.deleteCreated(ctx, rec, force)
}

// deleteCreated is Delete of a container that is not being created.
func (r *Runtime) deleteCreated(ctx context.Context, rec *record, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	shim, err := client.Connect(ctx, r.dir(rec.ID))
	if force && err != nil || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) { // it was killed, or ended with its pod
		return r.deleteDead(ctx, rec)
	}
	if err != nil {
		return err
	}
	defer shim.Close()
	if !force {
		if err := checkStopped(ctx, shim, rec); err != nil {
			return err
		}
	}
	if err := r.destroy(ctx, shim, rec.ID); err != nil {
		return err
	}
	return r.removeEnded(rec)
}

// checkStopped returns an error if the container still runs.
func checkStopped(ctx context.Context, shim *client.Shim, rec *record) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := status(ctx, shim, rec)
	if err != nil {
		return err
	}
	if status == Running || status == Paused {
		return errNotStopped(rec.ID, status)
	}
	return nil
}

// errNotStopped has runc's words.
func errNotStopped(id string, now specs.ContainerState) error {
	return fmt.Errorf("cannot delete container %s that is not stopped: %s: %w", id, now, errdefs.ErrFailedPrecondition)
}

// deleteDead removes a container whose shim is gone.
func (r *Runtime) deleteDead(ctx context.Context, rec *record) error {
	if err := r.deleteByProgram(ctx, rec.ID); err != nil {
		return err
	}
	return r.removeEnded(rec)
}

// removeEnded removes what is left of a container that its shim has removed, or whose
// shim is gone: its monitors and its directory.
func (r *Runtime) removeEnded(rec *record) error {
	err := endMonitors(append(r.execMonitors(rec.ID), rec.Monitor))
	return errors.Join(err, r.removeDir(rec.ID))
}

// removeUnfinished removes the directory of a create that was killed before it
// wrote its record, or of a delete that was killed after it removed that. Nothing
// else exists then. With a wrong --root it may be any directory: that is an error.
func (r *Runtime) removeUnfinished(id string) error {
	entries, err := os.ReadDir(r.dir(id))
	if err != nil {
		return nil //nolint:nilerr // there is no such directory
	}
	for _, e := range entries {
		if !containersFile.MatchString(e.Name()) {
			return fmt.Errorf("remove container's directory: %s is not a file of a container: is --root right? %w",
				filepath.Join(r.dir(id), e.Name()), errdefs.ErrFailedPrecondition)
		}
	}
	return r.removeDir(id)
}

// containersFile matches the files of a container's directory: this package's, the
// shim's, and those that are being written.
var containersFile = regexp.MustCompile(`^\.?(address|config\.json|exec-|io-|log$|oom$|origin$|record\.json|shim\.)`)

func (r *Runtime) removeDir(id string) error {
	if err := os.RemoveAll(r.dir(id)); err != nil {
		return fmt.Errorf("remove container's directory: %w", err)
	}
	return nil
}
