package container

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runc/libcontainer"

	"github.com/katabox/katabox/agent/spawn"
)

// waiting is a container's first process before it executes its program.
type waiting interface {
	// Execute has it do so, and returns when it has, or has ended.
	Execute() error
	// Close is called in any case, at the container's end.
	Close() error
}

// staged is a process in libcontainer's stage.
type staged struct {
	lib *libcontainer.Container
	pid int
}

// Execute implements waiting.
func (s staged) Execute() error {
	before, err := programOf(s.pid)
	if err != nil {
		return err
	}
	if err := s.lib.Exec(); err != nil {
		return err
	}
	before.awaitOther()
	return nil
}

// Close implements waiting.
func (staged) Close() error { return nil }

// Start lets the init process execute its program. It blocks until it has, or has
// ended, and the hooks have run.
func (c *Container) Start() error {
	executed := c.spans.Begin(c.id, "exec")
	err := c.waiting.Execute()
	if errors.Is(err, spawn.ErrKilled) {
		err = errors.New("container process is already dead")
	}
	if err != nil {
		return fmt.Errorf("start container %s: %w", c.id, err)
	}
	executed()
	c.hooks.poststart(c.init.pid)
	return nil
}
