package guest

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/ttrpc"
)

// A guest that takes nothing of what the host sends makes the sender wait. ttrpc's
// client heeds neither a call's context nor its deadline then, and other calls wait for
// the one that sends (client.go, createStream). So a call is left behind when its
// context ends, and a connection whose guest takes nothing is closed, which ends the
// calls that were left behind.

// within makes a call, and waits for it no longer than ctx.
func within(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, invoke ttrpc.Invoker) error {
	answer, result := new(ttrpc.Response), make(chan error, 1)
	go func() { result <- invoke(ctx, req, answer) }()
	select {
	case err := <-result:
		resp.Status, resp.Payload = answer.Status, answer.Payload
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takingConn is closed when the guest takes nothing for CallTimeout. A part of a
// message may have been sent then, so nothing can follow.
type takingConn struct{ Conn }

// Write implements net.Conn.
func (c takingConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(CallTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Close()
	}
	return n, err
}
