package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/katabox/katabox/agent/accept"
	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

const (
	// openTimeout bounds the wait for ForwardOpen and sending the answer,
	// dialTimeout the dialling in between.
	openTimeout = 10 * time.Second
	dialTimeout = 10 * time.Second
	// maxOpen bounds the simultaneous connections: each costs the guest two
	// blocks, two descriptors and two goroutines.
	maxOpen = 512
	// maxOpening bounds those whose request has not been read yet; others wait in
	// the listener's backlog.
	maxOpening = 64
)

// Server serves api.PortForward. It serves one listener.
type Server struct {
	Sockets Sockets
	// slots holds a token for each open connection.
	slots chan struct{}
}

// Serve accepts connections on l until ctx is done or l fails, then closes
// those that are open and waits for their end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.slots = make(chan struct{}, maxOpen)
	if err := accept.Serve(ctx, l, maxOpening, s.serve); err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	return nil
}

// serve serves one connection to its end and closes it. It calls asked when it has
// read the request, so that a server that does not answer delays no other.
func (s *Server) serve(ctx context.Context, conn net.Conn, asked func()) error {
	defer conn.Close()
	host, ok := conn.(relay.HalfCloser)
	if !ok {
		return fmt.Errorf("forward: a %T cannot be closed in halves", conn)
	}
	to, marked, err := s.request(ctx, conn)
	if err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return refuse(conn, fmt.Errorf("forward to %s: %d connections are open, which is the most", to.name, maxOpen))
	}
	asked()
	far, err := to.connect(ctx)
	if err != nil {
		return refuse(conn, fmt.Errorf("forward to %s: %w", to.name, err))
	}
	defer far.Close()
	if err := accept.Answer(conn, &api.ForwardOpened{Marked: marked}, openTimeout); err != nil {
		return err
	}
	if marked {
		host = relay.Mark(host)
	}
	return relay.Join(ctx, host, far)
}

// request reads the host's target, and whether it wants the ends marked.
func (s *Server) request(ctx context.Context, conn net.Conn) (to target, marked bool, err error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return to, false, fmt.Errorf("set deadline: %w", err)
	}
	var open api.ForwardOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return to, false, fmt.Errorf("forward: %w", err)
	}
	if to, err = s.targetOf(&open); err != nil {
		return to, false, refuse(conn, err)
	}
	return to, open.GetMarked(), nil
}

// refuse sends the host the reason, and returns it.
func refuse(conn net.Conn, why error) error {
	return errors.Join(why, accept.Answer(conn, &api.ForwardOpened{Error: api.ErrorText(why)}, openTimeout))
}
