package oci

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
)

// checkpointTimeout bounds saving a container. Its shim bounds that by the memory of its
// machine, all of which is written to a disk, and is asked meanwhile whether it answers.
const checkpointTimeout = 24 * time.Hour

// inventory is the file without which Podman takes a directory for no checkpoint
// (its libpod/container_internal_common.go): CRIU writes it.
const inventory = "inventory.img"

// inventoryText tells readers of that file what it is.
const inventoryText = "This is no image of CRIU's: " + checkpoint.File + " is the checkpoint, and kata-runtime restores it.\n"

// A container is saved in a directory of such a name, within the one that was asked
// for: freshPrefix and rand.Text.
const freshPrefix = "new-"

var freshName = regexp.MustCompile("^" + freshPrefix + "[A-Z2-7]{26,}$")

// Checkpoint saves a container in a directory, which is made if it is missing. It
// ends, unless leaveRunning is set. As with runc, it replaces the directory's former
// checkpoint, which stays if this one fails.
func (r *Runtime) Checkpoint(ctx context.Context, id, dir string, leaveRunning bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find directory for the checkpoint: %w", err)
	}
	sweepFresh(dir, time.Now().Add(-checkpointTimeout))
	fresh := filepath.Join(dir, freshPrefix+rand.Text())
	options, err := anypb.New(&runcoptions.CheckpointOptions{Exit: !leaveRunning, ImagePath: fresh})
	if err != nil {
		return fmt.Errorf("encode options of the checkpoint: %w", err)
	}
	err = r.within(ctx, checkpointTimeout, id, func(ctx context.Context, _ *record, shim *client.Shim) error {
		saving, stop := r.whileAnswering(ctx, shim, id)
		_, err := shim.Checkpoint(saving, &task.CheckpointTaskRequest{ID: id, Path: fresh, Options: options})
		if err != nil {
			err = cmp.Or(context.Cause(saving), err)
		}
		stop()
		if err == nil && !leaveRunning {
			awaitEnd(ctx, shim, id)
		}
		return err
	})
	if err != nil {
		_ = os.Remove(fresh) // it may be missing, and has a file if the container was lost after it was saved
		return err
	}
	if err := placeCheckpoint(fresh, dir); err != nil {
		return fmt.Errorf("container %s is saved in %s: put it into %s: %w", id, fresh, dir, err)
	}
	return nil
}

// awaitEnd waits for the end of a container that was saved: as with runc, it has
// stopped when the call returns. If it takes too long, a later call finds out.
func awaitEnd(ctx context.Context, shim *client.Shim, id string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, _ = shim.Wait(ctx, &task.WaitRequest{ID: id}) // fails if the shim has ended too
}

// sweepFresh removes what calls that were killed have left in dir: empty directories
// from before a time at which their shims have given up. One with a file is kept,
// since its container may have ended.
func sweepFresh(dir string, before time.Time) {
	entries, _ := os.ReadDir(dir) // it may be missing
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && freshName.MatchString(e.Name()) && info.ModTime().Before(before) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // fails if it is not empty
		}
	}
}

// placeCheckpoint moves a complete checkpoint to dir, and removes the directory
// that it was in. After an error it is still there.
func placeCheckpoint(fresh, dir string) error {
	if err := os.WriteFile(filepath.Join(fresh, inventory), []byte(inventoryText), 0o600); err != nil {
		return err
	}
	for _, name := range []string{inventory, checkpoint.File} {
		if err := os.Rename(filepath.Join(fresh, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	_ = os.Remove(fresh) // otherwise the next checkpoint removes it
	return nil
}

// Restore makes a container from a checkpoint in a directory, and runs it.
func (r *Runtime) Restore(ctx context.Context, id, dir string, o CreateOptions) error {
	var err error
	if o.Checkpoint, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("find checkpoint: %w", err)
	}
	return r.createAndStart(ctx, id, o)
}
