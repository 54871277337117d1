package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	tasktypes "github.com/containerd/containerd/api/types/task"
)

// Restore does what a restarted iSulad does with old, a container of the
// previous engine. A container whose shim does not answer, or that has ended,
// is recorded as exited with 255; one that ended is cleaned up now.
func (e *Engine) Restore(ctx context.Context, old *Container) (*Container, error) {
	c := &Container{ID: old.ID, cfg: old.cfg, engine: e, stopped: make(chan struct{})}
	e.add(c)
	saved, err := c.loadState()
	if err != nil {
		return nil, fmt.Errorf("restore container %.12s: %w", c.ID, err)
	}
	exit, err := c.openExit()
	if err != nil {
		return nil, err
	}
	if err := c.reattach(ctx); err != nil {
		exit.close()
		c.note("restore")(err)
		if !errors.Is(err, errNoShim) && c.Kill(ctx, 0) != nil {
			_ = c.taskDelete(ctx)
			_ = c.taskShutdown(ctx)
		}
		c.finish(exitLostState)
		return c, nil
	}
	c.watch(exit)
	if err := c.Kill(ctx, 0); err != nil {
		return nil, err
	}
	if pid := c.PID(); pid != saved {
		return nil, fmt.Errorf("restore container %.12s: its pid is %d and was %d", c.ID, pid, saved)
	}
	return c, nil
}

func (c *Container) loadState() (uint32, error) {
	data, err := os.ReadFile(filepath.Join(c.Bundle(), stateFile))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseUint(string(data), 10, 32)
	return uint32(pid), err
}

// reattach finds the shim by the file that the first start wrote, and asks it
// for the container's state.
func (c *Container) reattach(ctx context.Context) error {
	address, err := os.ReadFile(filepath.Join(c.Bundle(), "address"))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoShim, err)
	}
	if err := c.connect(string(address)); err != nil {
		return fmt.Errorf("%w: %w", errNoShim, err)
	}
	status, pid, err := c.State(ctx)
	if err != nil {
		return err
	}
	if status != tasktypes.Status_RUNNING && status != tasktypes.Status_PAUSED {
		return fmt.Errorf("it is %v", status)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
	return nil
}
