package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

// SavingQEMU is FindSavingQEMU for a test, which is skipped if there is none.
func (l Layout) SavingQEMU(t testing.TB) string {
	t.Helper()
	path, err := l.FindSavingQEMU()
	if err != nil {
		t.Skip(err)
	}
	return path
}

// FindSavingQEMU returns the path of a QEMU that can save a machine with a share of
// files: the one that tests/tools/qemu.sh has got, or else the installed one.
func (l Layout) FindSavingQEMU() (string, error) {
	for _, path := range []string{filepath.Join(l.Root, "build", "qemu", "usr", "bin", "qemu-system-x86_64"), DefaultQEMU} {
		out, err := exec.Command(path, "--version").Output()
		if err == nil && savingVersion.Match(out) {
			return path, nil
		}
	}
	return "", errors.New("there is no QEMU 8.2 or later: make qemu")
}

// savingVersion matches what such a QEMU prints.
var savingVersion = regexp.MustCompile(`version (8\.[2-9]|9\.|[1-9][0-9]+\.)`)

// Checkpoint saves the container with its task and its files as containerd's
// client does; it runs on, or ends. The image has the name of the container.
func (c *Container) Checkpoint(ctx context.Context, exit bool) (client.Image, error) {
	opts := []client.CheckpointOpts{client.WithCheckpointRuntime, client.WithCheckpointImage}
	if exit {
		opts = append(opts, client.WithCheckpointTaskExit)
	}
	// The task comes first: what it has written is in its files then.
	opts = append(opts, client.WithCheckpointTask, client.WithCheckpointRW)
	image, err := c.Box.Checkpoint(c.daemon.Context(ctx), "checkpoint/"+c.Box.ID(), opts...)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", c.Box.ID(), err)
	}
	return image, nil
}

// Restore makes a container from a checkpoint, with a copy of the saved one's files
// and its spec, which change alters. Its task is not started.
func (d *Daemon) Restore(ctx context.Context, name string, from client.Image, stdio Stdio, change ...oci.SpecOpts) (*Container, error) {
	ctx = d.Context(ctx)
	box, err := d.Client.Restore(ctx, d.NewID(name), from,
		client.WithRestoreImage, client.WithRestoreSpec, altering(change), client.WithRestoreRuntime, client.WithRestoreRW)
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", name, err)
	}
	c := &Container{Box: box, daemon: d}
	task, err := box.NewTask(ctx, c.creator(d, stdio), client.WithTaskCheckpoint(from))
	if err != nil {
		err = fmt.Errorf("restore task %s: %w", box.ID(), err)
		return nil, errors.Join(err, box.Delete(ctx, client.WithSnapshotCleanup))
	}
	c.Task, c.Process.Process = task, task
	return c, nil
}

// altering changes the restored spec.
func altering(change []oci.SpecOpts) client.RestoreOpts {
	return func(context.Context, string, *client.Client, client.Image, *imagespec.Index) client.NewContainerOpts {
		return func(ctx context.Context, c *client.Client, box *containers.Container) error {
			var spec oci.Spec
			if err := json.Unmarshal(box.Spec.GetValue(), &spec); err != nil {
				return fmt.Errorf("decode the saved spec: %w", err)
			}
			return client.WithSpec(&spec, change...)(ctx, c, box)
		}
	}
}
