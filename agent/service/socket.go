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
	pid := t.init.livePid()
	if pid == 0 {
		return nil, notRunning(containerID)
	}
	root, err := container.OpenRoot(pid)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", containerID, err)
	}
	defer root.Close()
	// If it had ended earlier, the directory could be that of another process
	// with the same PID.
	if t.init.livePid() != pid {
		return nil, notRunning(containerID)
	}
	conn, err := container.DialSocket(ctx, root, path, kind)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", containerID, err)
	}
	return conn, nil
}

func notRunning(id string) error {
	return fmt.Errorf("container %s does not run: %w", id, errdefs.ErrFailedPrecondition)
}
