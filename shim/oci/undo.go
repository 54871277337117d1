package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

const (
	// undoTimeout bounds the removal of a container by its shim: its kill, its
	// teardown and, for a pod's last container, the end of the machine and the
	// shim. A guest that ignores SIGKILL takes kill_timeout, which is a minute
	// without KVM, and half a minute more.
	undoTimeout = 3 * time.Minute
	// answerTimeout bounds the shim's answer to a question that it needs no guest
	// for. A shim that takes longer has stopped or hangs.
	answerTimeout = 20 * time.Second
	// answerPause is the time between two such questions.
	answerPause = 5 * time.Second
	// programTimeout bounds the call of the shim's program, which has its own
	// bound of half a minute. It is not part of undoTimeout: the program is called
	// when that has passed, too.
	programTimeout = time.Minute
)

// undo removes what a create has made in the shim, and the shim if it has no
// other container.
func (r *Runtime) undo(ctx context.Context, shim *client.Shim, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return r.destroy(ctx, shim, id)
}

// undoCancelled is undo after the engine has given up. The shim may still create the
// container: it gives that up when the connection is closed. A shim that is left
// without a container has ended when undoCancelled returns.
func (r *Runtime) undoCancelled(ctx context.Context, shim *client.Shim, rec *record) error {
	_ = shim.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	destroy := func(shim *client.Shim) error { return r.destroy(ctx, shim, rec.ID) }
	if rec.SandboxID != rec.ID {
		_, err := client.Reconnected(ctx, r.dir(rec.ID), destroy)
		return err
	}
	if err := client.UntilGone(ctx, r.dir(rec.ID), destroy); err != nil {
		return fmt.Errorf("undo a cancelled creation: %w", err)
	}
	return nil
}

// destroy kills a container and removes it from the shim; it is not an error if
// the container is gone. If the shim cannot do it, or not before ctx ends, its
// program does, which also ends a shim that does not answer, but not for a later
// container of a pod: its guest may still run that then, which is an error.
func (r *Runtime) destroy(ctx context.Context, shim *client.Shim, id string) error {
	answering, stop := r.whileAnswering(ctx, shim, id)
	err := killAndDelete(answering, shim, id)
	stop()
	if err == nil {
		err = shim.Shutdown(ctx, id)
	}
	if err == nil {
		return nil
	}
	deleteErr := r.deleteByProgram(ctx, id)
	if r.keeps(ctx, shim, id) {
		return fmt.Errorf("the shim has not removed container %s; deleting the pod's first container ends the pod: %w",
			id, errors.Join(err, deleteErr))
	}
	if deleteErr != nil {
		return errors.Join(err, deleteErr)
	}
	return nil
}

// keeps reports whether the shim may still have the container.
func (r *Runtime) keeps(ctx context.Context, shim *client.Shim, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(r.answerTimeout, answerTimeout))
	defer cancel()
	_, err := shim.State(ctx, &task.StateRequest{ID: id})
	return !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err)
}

// whileAnswering returns a context that ends as soon as the shim does not answer
// in time, while its guest may take as long as it needs. stop waits for the answer to
// the last question: one that comes for a call that was given up is an error in
// ttrpc's log, which the engine reads.
func (r *Runtime) whileAnswering(ctx context.Context, shim *client.Shim, id string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done, enough := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if err := r.answers(ctx, shim, id); err != nil {
				cancel(err)
				return
			}
			select {
			case <-time.After(answerPause):
			case <-enough:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		close(enough)
		<-done
		cancel(nil)
	}
}

// answers returns an error if the shim does not answer at all.
func (r *Runtime) answers(ctx context.Context, shim *client.Shim, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.answerTimeout, answerTimeout))
	defer cancel()
	if _, err := shim.Connect(ctx, &task.ConnectRequest{ID: id}); err != nil {
		return fmt.Errorf("ask the shim of container %s: %w", id, err)
	}
	return nil
}

// deleteByProgram calls the shim's program, even if ctx has ended.
func (r *Runtime) deleteByProgram(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), programTimeout)
	defer cancel()
	_, err := client.Delete(ctx, r.program(id))
	return err
}

func killAndDelete(ctx context.Context, shim *client.Shim, id string) error {
	_, err := shim.Kill(ctx, &task.KillRequest{ID: id, Signal: uint32(unix.SIGKILL), All: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill container: %w", err)
	}
	if _, err := shim.Wait(ctx, &task.WaitRequest{ID: id}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("wait for container's end: %w", err)
	}
	_, err = shim.TTRPCTaskService.Delete(ctx, &task.DeleteRequest{ID: id})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}
