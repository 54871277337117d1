package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// startFailureWait is how long iSulad waits for an exit code after a Start
// that failed.
const startFailureWait = 3 * time.Second

// Start is "isula start", or the second half of "isula run": everything up to a
// running container with its monitor and supervisor. On an error it stops the
// container by the calls that iSulad makes in that case.
func (c *Container) Start(ctx context.Context, stdio Stdio) error {
	exit, err := c.openExit()
	if err != nil {
		return err
	}
	c.reset()
	pid, err := c.start(ctx, stdio, exit)
	if err != nil {
		exit.close()
		c.finish(exitUnknown)
		return fmt.Errorf("start container %.12s: %w", c.ID, err)
	}
	c.mu.Lock()
	c.pid = pid
	c.mu.Unlock()
	c.watch(exit)
	return c.saveState(pid)
}

func (c *Container) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.console, c.address = nil, nil, ""
	c.stopped = make(chan struct{})
}

// start makes the calls that need the FIFOs, which are unlinked when it
// returns.
func (c *Container) start(ctx context.Context, stdio Stdio, exit *exitFIFO) (uint32, error) {
	fifos, err := openFIFOs(filepath.Join(c.stateDir(), "start"), stdio)
	if err != nil {
		return 0, err
	}
	defer fifos.unlink()
	console, err := c.attach(fifos)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.console = console
	c.mu.Unlock()
	if err := c.prepare(); err != nil {
		return 0, err
	}
	if err := c.connectShim(); err != nil {
		return 0, errors.Join(err, c.giveUp(ctx))
	}
	if err := c.taskCreate(ctx, fifos.paths); err != nil {
		return 0, errors.Join(err, c.giveUp(ctx))
	}
	if err := os.WriteFile(filepath.Join(c.Bundle(), "address"), []byte(c.Address()), 0o640); err != nil {
		return 0, err
	}
	if c.cfg.Created != nil {
		c.cfg.Created()
	}
	pid, err := c.taskStart(ctx, "")
	if err != nil {
		_, _ = exit.read(ctx, startFailureWait)
		return 0, errors.Join(err, c.taskDelete(ctx), c.taskShutdown(ctx))
	}
	return pid, nil
}

// connectShim runs the shim's program and connects to the address that it
// printed.
func (c *Container) connectShim() error {
	l, err := c.engine.launch(c.ID, c.Bundle())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.launches = append(c.launches, l)
	c.address = l.Stdout
	c.mu.Unlock()
	if l.ExitCode != 0 {
		return fmt.Errorf("shim start ended with %d: %s", l.ExitCode, l.Stderr)
	}
	return c.connect(l.Stdout)
}

// giveUp makes iSulad's calls after a failed Create. If even the shim's start
// failed, they reach no shim.
func (c *Container) giveUp(ctx context.Context) error {
	return errors.Join(c.Kill(ctx, 9), c.taskDelete(ctx), c.taskShutdown(ctx))
}

// finish releases what a start has set up on the host, and marks the container
// as exited.
func (c *Container) finish(code int32) {
	err := errors.Join(c.unmountRootfs(), os.RemoveAll(c.stateDir()))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exitCode, c.failure = code, errors.Join(c.failure, err)
	close(c.stopped)
}

const stateFile = "container_state.json"

func (c *Container) saveState(pid uint32) error {
	return os.WriteFile(filepath.Join(c.Bundle(), stateFile), []byte(strconv.Itoa(int(pid))), 0o640)
}

// Stop is "isula stop": the stop signal, then SIGKILL after the timeout.
func (c *Container) Stop(ctx context.Context, timeout time.Duration) error {
	if err := c.Kill(ctx, 15); err != nil {
		return err
	}
	soft, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.Wait(soft); err == nil || ctx.Err() != nil {
		return err
	}
	if err := c.Kill(ctx, 9); err != nil {
		return err
	}
	_, err := c.Wait(ctx)
	return err
}

// Remove is "isula rm", which refuses a running container, or with force
// kills it.
func (c *Container) Remove(ctx context.Context, force bool) error {
	if stopped := c.Stopped(); stopped != nil && !closed(stopped) {
		if !force {
			return fmt.Errorf("remove container %.12s: it is running", c.ID)
		}
		if err := c.Kill(ctx, 9); err != nil && !closed(stopped) {
			return err
		}
		if _, err := c.Wait(ctx); err != nil {
			return err
		}
	}
	c.closeConsoles()
	return c.remove()
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
