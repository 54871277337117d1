package container

import (
	"context"

	"github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/shim/client"
)

// process is a command in a container: its own, or an exec's.
type process struct {
	Name string // the container's
	exec string // "" for the container's own command
	shim *client.Shim
	exit *waiter // nil before the shim has created the process
}

// Kill sends the command a signal.
func (p *process) Kill(ctx context.Context, signal uint32) error {
	_, err := p.shim.Kill(ctx, &task.KillRequest{ID: p.Name, ExecID: p.exec, Signal: signal})
	return err
}

// Resize sets the size of the command's terminal.
func (p *process) Resize(ctx context.Context, width, height uint16) error {
	_, err := p.shim.ResizePty(ctx, &task.ResizePtyRequest{ID: p.Name, ExecID: p.exec, Width: uint32(width), Height: uint32(height)})
	return err
}

// closeStdin passes on the end of the input.
func (p *process) closeStdin(ctx context.Context) error {
	_, err := p.shim.CloseIO(ctx, &task.CloseIORequest{ID: p.Name, ExecID: p.exec, Stdin: true})
	return err
}

// disconnect ends the connection to the shim, which then kills a command that runs.
func (p *process) disconnect() error {
	err := p.shim.Close()
	p.exit.stop()
	return err
}
