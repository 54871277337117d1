package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/client"
)

// program returns the shim's program for a container.
func (m *Manager) program(name string) client.Program {
	return client.Program{Path: m.Shim, ID: name, Bundle: m.Store.ContainerDir(name)}
}

// boot starts the shim and the machine.
func (c *Container) boot(ctx context.Context, o Options, stdio *Stdio) error {
	mounts, err := c.m.Store.Rootfs(c.Name, filepath.Join(c.dir, "rootfs"))
	if err != nil {
		return err
	}
	if err := stdio.open(c.dir, "stdio", o.Spec.Terminal); err != nil {
		return err
	}
	c.undo = append(c.undo, func(context.Context) error { return stdio.close() })
	if stdio.log, err = openLog(c.dir); err != nil {
		return err
	}
	c.shim, err = client.Start(ctx, c.m.program(c.Name))
	if err != nil {
		return err
	}
	c.undo = append(c.undo, c.endShim)
	_, err = c.shim.Create(ctx, &task.CreateTaskRequest{
		ID: c.Name, Bundle: c.dir, Rootfs: mounts, Terminal: o.Spec.Terminal,
		Stdin: stdio.fifos.In, Stdout: stdio.fifos.Out, Stderr: stdio.fifos.Err,
	})
	if err != nil {
		c.cancelled = ctx.Err() != nil
		return startError(err)
	}
	c.beginWait(ctx)
	return nil
}

// endShim removes the container from the shim and ends the shim, whatever their
// state.
func (c *Container) endShim(ctx context.Context) error {
	defer func() { _ = c.disconnect() }()
	var err error
	if c.cancelled {
		_ = c.shim.Close()
		err = client.UntilGone(ctx, c.dir, func(shim *client.Shim) error { return destroy(ctx, shim, c.Name) })
	} else {
		err = destroy(ctx, c.shim, c.Name)
	}
	if err == nil {
		return nil
	}
	// A shim that died, or failed, is cleaned up from outside, even if ctx has ended;
	// the reason does not matter then.
	if _, deleteErr := client.Delete(context.WithoutCancel(ctx), c.m.program(c.Name)); deleteErr != nil {
		return errors.Join(err, deleteErr)
	}
	return nil
}

// destroy removes a container, which need not exist, from its shim, and ends the shim
// unless it is still creating one.
func destroy(ctx context.Context, shim *client.Shim, id string) error {
	_, err := shim.Kill(ctx, &task.KillRequest{ID: id, Signal: 9})
	if err == nil {
		_, err = shim.Wait(ctx, &task.WaitRequest{ID: id})
	}
	if err == nil || errdefs.IsNotFound(err) {
		_, err = shim.TTRPCTaskService.Delete(ctx, &task.DeleteRequest{ID: id})
	}
	if err == nil || errdefs.IsNotFound(err) {
		err = shim.Shutdown(ctx, id)
	}
	return err
}

// Start runs the command. After an error the container no longer exists.
func (c *Container) Start(ctx context.Context) error {
	if _, err := c.shim.Start(ctx, &task.StartRequest{ID: c.Name}); err != nil {
		c.cancelled = ctx.Err() != nil
		return errors.Join(startError(err), c.unwind(ctx))
	}
	now := time.Now()
	c.record.Started = &now
	if err := c.m.write(c.record); err != nil {
		return errors.Join(err, c.unwind(ctx))
	}
	return nil
}

// Wait connects the command to its streams. It waits until the container has ended and
// its output was passed on, stops its machine and network, and returns the exit code. It
// removes the container's files if its options say so. What fails after the command's end
// is a warning: an error means that the exit code is not known. If output was dropped
// because it could not be written, the code of a command that did not fail is ExitError.
func (c *Container) Wait(ctx context.Context, stdio *Stdio) (int, error) {
	var code int
	stdio.relay(func() { _ = c.closeStdin(context.WithoutCancel(ctx)) }) // a command that has ended needs no end of its input
	stop := c.watch(stdio)
	resp, err := c.exit.wait(ctx)
	stop()
	if err == nil {
		code = int(resp.ExitStatus)
	} else if code, err = c.lost(ctx, err); err != nil {
		return 0, errors.Join(err, c.unwind(ctx))
	}
	c.warn(stdio, stdio.drain(ctx))
	c.record.Exited = &Exit{Code: code, At: time.Now()}
	if !c.record.Remove {
		c.undo = c.undo[1:] // the directory stays
	}
	c.warn(stdio, c.unwind(ctx))
	c.record.Warnings = append(c.record.Warnings, stdio.warnings()...)
	if c.record.Remove {
		c.warn(stdio, c.m.Store.Sweep())
	} else if err := c.m.write(c.record); err != nil {
		stdio.warn(err)
	}
	return stdio.exitCode(code), nil
}

// warn reports what went wrong beside the command, and adds it to the record, which the
// caller writes. A nil error is ignored.
func (c *Container) warn(stdio *Stdio, err error) {
	if err == nil {
		return
	}
	stdio.warn(err)
	c.record.Warnings = append(c.record.Warnings, err.Error())
}

// lost determines how a container ended if its shim does not answer, or the caller does
// not wait for it any more: then the container is ended with the shim.
func (c *Container) lost(ctx context.Context, cause error) (int, error) {
	if !errdefs.IsUnavailable(cause) && ctx.Err() == nil {
		return 0, fmt.Errorf("wait for container %s: %w", c.Name, cause)
	}
	exit, err := client.Delete(context.WithoutCancel(ctx), c.m.program(c.Name))
	if err != nil {
		return 0, errors.Join(cause, err)
	}
	return int(exit.Status), nil
}
