package debug

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/accept"
	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/command"
)

const (
	// openTimeout bounds the wait for DebugOpen and the sending of the answer.
	openTimeout = 10 * time.Second
	// maxProcesses bounds the processes at a time.
	maxProcesses = 16
)

// Server serves api.PortDebug.
type Server struct {
	Children command.Children
}

// Serve starts a process for each connection to l until ctx is done or l fails,
// then kills those that run and waits for their end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := accept.Serve(ctx, l, maxProcesses, s.serve); err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	return nil
}

func (s *Server) serve(ctx context.Context, conn net.Conn, _ func()) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	var open api.DebugOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return fmt.Errorf("debug: %w", err)
	}
	p, err := s.start(&open)
	if err != nil {
		return accept.Answer(conn, &api.DebugOpened{Error: api.ErrorText(err)}, openTimeout)
	}
	log.G(ctx).WithField("pid", p.cmd.Process.Pid).Warn("the debug console has started a process")
	if err := accept.Answer(conn, &api.DebugOpened{}, openTimeout); err != nil {
		p.kill()
	}
	return p.run(conn)
}
