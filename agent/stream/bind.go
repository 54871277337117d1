package stream

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
)

// end is the agent's end of one stream.
type end interface {
	// allowReplacing is called by each Park, before it parks the stream.
	allowReplacing()
	// release begins to end a connection that may be replaced. The result is closed
	// when it is; it is nil if there is none.
	release() <-chan struct{}
	// reserve claims the stream. It returns the reservation's number, and how many
	// bytes of the stream passed on earlier connections.
	reserve() (claim int, sent uint64, err error)
	// attach takes conn for that reservation, and returns what has to run. file is as of
	// Reservation.Frame.
	attach(claim int, conn net.Conn, file string, begin func()) []func()
	is(state) bool
}

var (
	_ end = (*input)(nil)
	_ end = (*output)(nil)
)

var allStreams = []api.Stream{api.Stream_STREAM_STDIN, api.Stream_STREAM_STDOUT, api.Stream_STREAM_STDERR}

// end returns the end of a requested stream, otherwise nil.
func (s *Stdio) end(stream api.Stream) end {
	switch {
	case stream == api.Stream_STREAM_STDIN && s.request.Stdin:
		return s.stdin
	case stream == api.Stream_STREAM_STDOUT && s.request.Stdout:
		return s.stdout
	case stream == api.Stream_STREAM_STDERR && s.request.Stderr:
		return s.stderr
	default:
		return nil
	}
}

// Reservation is the claim of one connection to a stream, until Park.
type Reservation struct {
	// Sent is how many bytes of the stream passed on earlier connections: of an
	// input those that were received, of an output those that were sent, or were
	// discarded without a connection. The new connection gets what follows.
	Sent uint64

	stdio *Stdio
	end   end
	claim int
	file  string
}

// Frame lets an output's bytes come in frames, and large blocks of them by that file
// (api.FrameSlot). It reports whether they will: not those of a terminal, or of an input.
// It is called before Attach.
func (r *Reservation) Frame(file string) bool {
	o, ok := r.end.(*output)
	if !ok || o.terminal || file == "" {
		return false
	}
	r.file = file
	return true
}

// releaseTimeout bounds how long Reserve waits for the end of the connection whose
// place it takes.
const releaseTimeout = 5 * time.Second

// Reserve claims a stream for one connection. It fails if the stream was not
// requested, is already claimed, or has a connection. It does not fail if Park was
// called since: then Park failed, for this or another stream, and the host dropped
// the connection. Reserve closes that connection and replaces it, for which it
// blocks up to releaseTimeout, because input that has arrived is read first. The
// connection of a stream that has ended ends immediately.
func (s *Stdio) Reserve(stream api.Stream) (*Reservation, error) {
	e := s.end(stream)
	if e == nil {
		return nil, s.unasked(stream)
	}
	if done := e.release(); done != nil {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		endsWithin(ctx, done) // Otherwise the stream is still bound.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	claim, sent, err := e.reserve()
	if err != nil {
		return nil, fmt.Errorf("%v is bound: %w", stream, err)
	}
	return &Reservation{Sent: sent, stdio: s, end: e, claim: claim}, nil
}

// unasked is the error for a stream that was not requested.
func (s *Stdio) unasked(stream api.Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	return fmt.Errorf("%v was not asked for: %w", stream, errdefs.ErrFailedPrecondition)
}

// Attach starts to copy the reserved stream over conn, which the Stdio then owns.
// If begin is not nil, it is called before the first byte: the stream is bound when
// the host learns that, so that Park waits for what the host sends then. Attach
// closes conn, without begin, if the reservation is void. It is called once.
func (r *Reservation) Attach(conn net.Conn, begin func()) {
	r.stdio.mu.Lock()
	defer r.stdio.mu.Unlock()
	if r.stdio.closed {
		_ = conn.Close()
		return
	}
	for _, copying := range r.end.attach(r.claim, conn, r.file, begin) {
		r.stdio.pumps.Go(copying)
	}
}

// Unbound returns the streams that were requested and have no connection. A
// stream that has ended needs none.
func (s *Stdio) Unbound() []api.Stream {
	var missing []api.Stream
	for _, stream := range allStreams {
		if e := s.end(stream); e != nil && e.is(unbound) {
			missing = append(missing, stream)
		}
	}
	return missing
}
