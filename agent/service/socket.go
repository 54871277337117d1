package service

import (
	"context"
	"fmt"
	"net"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/agent/forward"
)

var _ forward.Sockets = (*Pod)(nil)

// DialSocket implements forward.Sockets.
func (p *Pod) DialSocket(ctx context.Context, containerID, path string, kind int) (*net.UnixConn, error) {
	t, err := p.task(containerID)
	if err != nil {
		return nil, err
	}
	ctr, err := t.running()
	if err != nil {
		return nil, err
	}
	root, err := ctr.OpenRoot()
	if err != nil {
		return nil, notRunning(containerID, err)
	}
	defer root.Close()
	conn, err := container.DialSocket(ctx, root, path, kind)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", containerID, err)
	}
	return conn, nil
}

// running returns a container that was made and whose init has not ended, as far as
// that is known.
func (t *task) running() (Container, error) {
	if !t.init.lives() {
		return nil, notRunning(t.id.String(), nil)
	}
	return t.container()
}

// notRunning is the error for a container whose init has ended; why may be nil.
func notRunning(id string, why error) error {
	err := fmt.Errorf("container %s does not run: %w", id, errdefs.ErrFailedPrecondition)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}
