package oci

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

// undoTimeout bounds the removal of a container: its kill, its teardown and, for
// a pod's last container, the end of the machine and the shim.
const undoTimeout = time.Minute

// undo removes what a create has made in the shim, and the shim if it has no
// other container.
func (r *Runtime) undo(ctx context.Context, shim *client.Shim, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return r.destroy(ctx, shim, id)
}

// destroy kills a container and removes it from the shim; it is not an error if
// the container is gone. If the shim cannot do it, its program does.
func (r *Runtime) destroy(ctx context.Context, shim *client.Shim, id string) error {
	err := killAndDelete(ctx, shim, id)
	if err == nil {
		err = shim.Shutdown(ctx, id)
	}
	if err == nil {
		return nil
	}
	if _, deleteErr := client.Delete(ctx, r.program(id)); deleteErr != nil {
		return errors.Join(err, deleteErr)
	}
	return nil
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
