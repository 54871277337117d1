package stream

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/agent/api"
)

// openTimeout bounds the exchange of StreamOpen and StreamOpened.
const openTimeout = 10 * time.Second

// Finder finds the stdio of a process; execID is empty for a container's
// init. Its error is sent to the host.
type Finder interface {
	FindStdio(containerID, execID string) (*Stdio, error)
}

// Server accepts stdio connections and binds each to its process.
type Server struct {
	Finder Finder
}

// Serve accepts connections on l until ctx is done or l fails. Connections
// that are bound live on; they end with their process.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var opening sync.WaitGroup
	defer opening.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept stream: %w", err)
		}
		opening.Go(func() {
			if err := s.open(conn); err != nil {
				_ = conn.Close()
				log.G(ctx).WithError(err).Warn("stream was not opened")
			}
		})
	}
}

// open does the exchange and passes conn on; on error the caller keeps conn.
func (s *Server) open(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	var req api.StreamOpen
	if err := api.ReadFrame(conn, &req); err != nil {
		return err
	}
	stdio, err := s.Finder.FindStdio(req.GetContainerId(), req.GetExecId())
	var place *Reservation
	if err == nil {
		place, err = stdio.Reserve(req.GetStream())
	}
	if err != nil {
		_ = api.WriteFrame(conn, &api.StreamOpened{Error: api.ErrorText(err)})
		return fmt.Errorf("bind %v of %q %q: %w", req.GetStream(), req.GetContainerId(), req.GetExecId(), err)
	}
	framed := place.Frame(req.GetOutputFile())
	// From here on the stream is claimed: even a failed connection is attached,
	// and its output discarded.
	place.Attach(conn, func() {
		_ = api.WriteFrame(conn, &api.StreamOpened{Sent: place.Sent, Framed: framed})
		_ = conn.SetDeadline(time.Time{})
	})
	return nil
}
