package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/katabox/katabox/internal/relay"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// servingMarked is serving with a guest that marks the ends of its connections.
func servingMarked(t *testing.T, handle func(conn relay.HalfCloser)) DialFunc {
	t.Helper()
	dial := serving(t, func(c *net.UnixConn) { handle(relay.Mark(c)) })
	return func(ctx context.Context, address string) (guest.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		greeting(t, conn)
		return relay.Mark(conn), nil
	}
}

// A server in the guest that resets its connection is a reset to the client, also to
// one that waits for the end of an answer.
func TestGuestResets(t *testing.T) {
	for _, half := range []bool{false, true} {
		t.Run(fmt.Sprintf("half-closed %v", half), func(t *testing.T) {
			s := newSpace(t)
			release := make(chan struct{})
			s.forwarder(t, servingMarked(t, func(c relay.HalfCloser) {
				_, _ = io.WriteString(c, "half an ans")
				<-release // ends without the mark
			}))
			conn := s.mustConnect(t, "127.0.0.1:80")
			if half {
				_ = conn.CloseWrite()
			}
			if _, err := io.ReadFull(conn, make([]byte, len("half an ans"))); err != nil {
				t.Error(err)
			}
			close(release)
			wantReset(t, conn)
		})
	}
}

// A client that resets its connection is a reset in the guest.
func TestClientResets(t *testing.T) {
	s := newSpace(t)
	heard := make(chan error, 1)
	s.forwarder(t, servingMarked(t, func(c relay.HalfCloser) {
		_, err := io.WriteString(c, "go")
		if err == nil {
			_, err = io.ReadAll(c)
		}
		heard <- err
	}))
	conn := s.mustConnect(t, "127.0.0.1:80")
	_, _ = io.ReadFull(conn, make([]byte, 2))
	_, _ = io.WriteString(conn, "half a requ")
	reset(conn)
	if err := receive(t, heard); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the guest reads %v, want a reset", err)
	}
}

// Ends that are marked are ends of file, both ways.
func TestMarkedEnds(t *testing.T) {
	s := newSpace(t)
	s.forwarder(t, servingMarked(t, func(c relay.HalfCloser) {
		if _, err := io.Copy(c, c); err != nil {
			t.Error(err)
		}
		_ = c.CloseWrite()
	}))
	roundTrip(t, s.mustConnect(t, "127.0.0.1:80"), 7, 1<<20)
}
