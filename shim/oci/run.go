package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci/monitor"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// RunOptions are the options of the run command.
type RunOptions struct {
	CreateOptions
	// Detach leaves the container with a monitor and returns.
	Detach bool
	// Keep leaves a container that has ended for a Delete.
	Keep bool
}

// Run makes a container and runs it. It returns how it has ended when it has ended and, unless
// it is to be kept, was deleted, or the zero value once a detached one runs. SIGTERM and SIGINT end
// the creation; later signals are the container's. On an error of the creation or the
// start nothing is left.
func (r *Runtime) Run(ctx context.Context, id string, o RunOptions) (exit monitor.Exit, err error) {
	creating, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if o.Detach {
		return exit, r.createAndStart(creating, id, o.CreateOptions)
	}
	err = r.create(creating, id, o.CreateOptions, false, func(m made) (err error) {
		if err := r.represent(m.rec, os.Getpid(), ""); err != nil {
			return err
		}
		cfg := monitor.Config{Bundle: r.dir(id), ID: id, Terminal: m.spec.Process.Terminal}
		exit, err = monitor.Run(ctx, cfg, m.stdio, func() error {
			if creating.Err() != nil {
				return context.Cause(creating)
			}
			if err := r.Start(ctx, id); err != nil {
				return err
			}
			return writePIDFile(o.PIDFile, os.Getpid())
		})
		return err
	})
	if err != nil || o.Keep {
		return exit, err
	}
	if err := r.deleteOwn(context.WithoutCancel(ctx), id); err != nil {
		log.G(ctx).WithError(err).Error("the container has ended and could not be deleted: kata-runtime delete --force " + id)
	}
	return exit, nil
}

// deleteOwn deletes a container that has ended and that this process has represented. It
// is not an error if another has deleted it.
func (r *Runtime) deleteOwn(ctx context.Context, id string) error {
	rec, err := r.load(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	rec.Monitor = persist.Process{} // which Delete ends
	if err := r.save(rec); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return r.Delete(ctx, id, true)
}

// createAndStart makes a container with a monitor, and runs it. On an error nothing is
// left.
func (r *Runtime) createAndStart(ctx context.Context, id string, o CreateOptions) error {
	pidFile := o.PIDFile
	o.PIDFile = "" // it says that the container runs
	if err := r.Create(ctx, id, o); err != nil {
		return err
	}
	err := r.Start(ctx, id)
	if err == nil {
		err = r.writeMonitorsPID(pidFile, id)
	}
	if err != nil {
		if deleteErr := r.Delete(context.WithoutCancel(ctx), id, true); deleteErr != nil {
			return fmt.Errorf("%w; and its remains could not be removed: %w", err, deleteErr)
		}
		return err
	}
	return nil
}

// writeMonitorsPID writes the pid of a container's monitor to a file; "" for none.
func (r *Runtime) writeMonitorsPID(path, id string) error {
	if path == "" {
		return nil
	}
	rec, err := r.load(id)
	if err != nil {
		return err
	}
	return writePIDFile(path, rec.Monitor.PID)
}
