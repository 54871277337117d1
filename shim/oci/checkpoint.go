package oci

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
)

// checkpointTimeout bounds saving a container: the whole memory of its machine is
// written to a disk.
const checkpointTimeout = 11 * time.Minute

// Checkpoint saves a container in a directory, which is made if it is missing. It
// ends, unless leaveRunning is set.
func (r *Runtime) Checkpoint(ctx context.Context, id, dir string, leaveRunning bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find directory for the checkpoint: %w", err)
	}
	options, err := anypb.New(&runcoptions.CheckpointOptions{Exit: !leaveRunning, ImagePath: dir})
	if err != nil {
		return fmt.Errorf("encode options of the checkpoint: %w", err)
	}
	return r.within(ctx, checkpointTimeout, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		_, err := shim.Checkpoint(ctx, &task.CheckpointTaskRequest{ID: id, Path: dir, Options: options})
		return err
	})
}

// Restore makes a container from a checkpoint in a directory, and runs it.
func (r *Runtime) Restore(ctx context.Context, id, dir string, o CreateOptions) error {
	var err error
	if o.Checkpoint, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("find checkpoint: %w", err)
	}
	if err := r.Create(ctx, id, o); err != nil {
		return err
	}
	if err := r.Start(ctx, id); err != nil {
		if deleteErr := r.Delete(context.WithoutCancel(ctx), id, true); deleteErr != nil {
			return fmt.Errorf("%w; and its remains could not be removed: %w", err, deleteErr)
		}
		return err
	}
	return nil
}
