package reverse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/katabox/katabox/agent/accept"
	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

const (
	// openTimeout bounds the wait for ReverseOpen, and sending each frame to
	// the host.
	openTimeout = 10 * time.Second
	// maxOpen bounds the host's simultaneous connections but those that it has
	// taken, of which it bounds each listener's; more would be a bug of the host.
	maxOpen = 1024
)

// Server serves api.PortReverse. The zero value is ready; it serves one
// listener.
type Server struct {
	// SocketDir is where UNIX sockets are made; empty is api.GuestSocketDir.
	SocketDir string

	waiting waiting
}

// Serve accepts connections on l until ctx is done or l fails, then closes
// those that are open and waits for their end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := accept.Serve(ctx, l, maxOpen, s.serve); err != nil {
		return fmt.Errorf("reverse: %w", err)
	}
	return nil
}

// serve serves one of the host's connections to its end and closes it. It calls
// taken once the connection has taken one that waited.
func (s *Server) serve(ctx context.Context, conn net.Conn, taken func()) error {
	defer conn.Close()
	host, ok := conn.(relay.HalfCloser)
	if !ok {
		return fmt.Errorf("reverse: a %T cannot be closed in halves", conn)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(openTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	var open api.ReverseOpen
	if err := api.ReadFrame(conn, &open); err != nil {
		return fmt.Errorf("reverse: %w", err)
	}
	switch what := open.GetWhat().(type) {
	case *api.ReverseOpen_Listen:
		return s.listen(ctx, conn, what.Listen)
	case *api.ReverseOpen_Take:
		return s.take(ctx, host, &open, taken)
	case *api.ReverseOpen_Datagrams:
		return serveDatagrams(ctx, conn, what.Datagrams)
	}
	return refuse(conn, errors.New("reverse: want listen, take or datagrams"))
}

// take joins the host's connection with the waiting one.
func (s *Server) take(ctx context.Context, host relay.HalfCloser, open *api.ReverseOpen, taken func()) error {
	conn, ok := s.waiting.take(open.GetTake())
	if !ok {
		return refuse(host, fmt.Errorf("take connection %d: it does not wait, or not any more", open.GetTake()))
	}
	if err := accept.Answer(host, &api.ReverseOpened{Marked: open.GetMarked()}, openTimeout); err != nil {
		return errors.Join(err, conn.Close())
	}
	if open.GetMarked() {
		host = relay.Mark(host)
	}
	taken()
	return relay.Join(ctx, host, conn)
}

// refuse sends the host the reason, and returns it.
func refuse(conn net.Conn, why error) error {
	return errors.Join(why, answer(conn, api.ErrorText(why)))
}

// answer sends ReverseOpened; refusal is empty for success. The connection has
// no deadline afterwards.
func answer(conn net.Conn, refusal string) error {
	return accept.Answer(conn, &api.ReverseOpened{Error: refusal}, openTimeout)
}

// loopback parses an address and a port of the guest's loopback.
func loopback(address string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" || !a.Addr().IsLoopback() {
		return a, fmt.Errorf(`listen at %.100q: want a loopback address and a port, as "127.0.0.11:53"`, address)
	}
	return a, nil
}

// untilEnd returns a context that also ends when the host closes the
// connection, on which it sends nothing more. The caller closes conn and then
// calls wait.
func untilEnd(ctx context.Context, conn net.Conn) (_ context.Context, wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		_, _ = io.Copy(io.Discard, conn)
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}
