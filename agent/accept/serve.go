package accept

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/log"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
)

// Handler serves one connection to its end and closes it. It returns soon after
// ctx ends. release makes room for another connection before this one ends, and
// may be called again. The error is logged.
type Handler func(ctx context.Context, conn net.Conn, release func()) error

// Serve accepts connections on l until ctx is done or l fails, then ends the
// handlers' context and waits for them. At most limit connections are handled
// concurrently; others wait in the listener's backlog.
func Serve(ctx context.Context, l net.Listener, limit int, handle Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	slots := make(chan struct{}, limit)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept connection: %w", err)
		}
		conns.Go(func() {
			release := sync.OnceFunc(func() { <-slots })
			defer release()
			if err := handle(ctx, conn, release); err != nil {
				log.G(ctx).WithError(err).Debug("connection from the host ended")
			}
		})
	}
}

// Answer sends one frame within the time given. The connection has no deadline
// afterwards.
func Answer(conn net.Conn, frame proto.Message, within time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if err := api.WriteFrame(conn, frame); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear deadline: %w", err)
	}
	return nil
}
