package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/katabox/katabox/agent/accept"
	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

const (
	// openTimeout bounds the wait for ForwardOpen and the sending of the
	// answer, dialTimeout what is between them.
	openTimeout = 10 * time.Second
	dialTimeout = 10 * time.Second
	// maxOpen bounds the connections at a time: each costs the guest two
	// blocks, two descriptors and two goroutines.
	maxOpen = 512
	// maxOpening bounds those that are not open yet; further ones wait in the
	// listener's backlog.
	maxOpening = 64
)

// Server serves api.PortForward. The zero value is ready; it serves one
// listener.
type Server struct {
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

// serve sees one connection through and closes it. It calls opened when the
// connection is open: another may be opened then.
func (s *Server) serve(ctx context.Context, conn net.Conn, opened func()) error {
	defer conn.Close()
	host, ok := conn.(relay.HalfCloser)
	if !ok {
		return fmt.Errorf("forward: a %T cannot be closed in halves", conn)
	}
	address, err := s.request(ctx, conn)
	if err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return refuse(conn, fmt.Errorf("forward to %s: %d connections are open, which is the most", address, maxOpen))
	}
	port, err := dial(ctx, address)
	if err != nil {
		return refuse(conn, err)
	}
	defer port.Close()
	if err := answer(conn, ""); err != nil {
		return err
	}
	opened()
	return relay.Join(ctx, host, port)
}

// request reads where the host wants to go.
func (s *Server) request(ctx context.Context, conn net.Conn) (netip.AddrPort, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return netip.AddrPort{}, fmt.Errorf("set deadline: %w", err)
	}
	var open api.ForwardOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return netip.AddrPort{}, fmt.Errorf("forward: %w", err)
	}
	// Only numbers: a name would be looked up by the guest's resolver, and
	// mean something else than on the host.
	address, err := netip.ParseAddrPort(open.GetAddress())
	if err != nil || address.Port() == 0 || address.Addr().Zone() != "" {
		return address, refuse(conn, fmt.Errorf(`forward to %.100q: want an address and a port, as "127.0.0.1:80" or "[::1]:80"`, open.GetAddress()))
	}
	return address, nil
}

func dial(ctx context.Context, address netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("forward to %s: %w", address, err)
	}
	port, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("forward to %s: got a %T", address, conn), conn.Close())
	}
	return port, nil
}

// refuse tells the host why, and returns that.
func refuse(conn net.Conn, why error) error {
	return errors.Join(why, answer(conn, why.Error()))
}

// answer sends ForwardOpened; refusal is empty for success.
func answer(conn net.Conn, refusal string) error {
	return accept.Answer(conn, &api.ForwardOpened{Error: refusal}, openTimeout)
}
