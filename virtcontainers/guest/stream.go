package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/katabox/katabox/agent/api"
)

// OpenStream connects to one end of a process's stdio. The process must have
// been created with that end, and not been started.
func (c *Client) OpenStream(ctx context.Context, containerID, execID string, kind api.Stream) (Conn, error) {
	conn, err := c.dial(ctx, api.PortStream)
	if err != nil {
		return nil, fmt.Errorf("open %s stream: %w", kind, err)
	}
	if err := bind(ctx, conn, &api.StreamOpen{ContainerId: containerID, ExecId: execID, Stream: kind}); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s stream: %w", kind, err), conn.Close())
	}
	return conn, nil
}

// bind sends the header and reads the answer, no longer than ctx allows.
func bind(ctx context.Context, conn Conn, open *api.StreamOpen) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := api.WriteFrame(conn, open); err != nil {
		return err
	}
	var answer api.StreamOpened
	if err := api.ReadFrame(conn, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return fmt.Errorf("agent: %s", answer.Error)
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}
