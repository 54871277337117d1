package guest_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// takingNothing returns a client of a guest that greets, and then takes no more than
// that many bytes.
func takingNothing(t *testing.T, but int) *guest.Client {
	t.Helper()
	host, peer := net.Pipe()
	go func() {
		readRequest(peer)
		_, _ = peer.Write(greeting())
		_, _ = peer.Read(make([]byte, but))
	}()
	c, err := guest.Connect(t.Context(), func(context.Context, uint32) (guest.Conn, error) { return pipeConn{host}, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), peer.Close() })
	return c
}

// A guest that takes nothing from its connection, or a part of a message, keeps no
// call longer than its context: neither the one that sends, nor those that follow.
func TestCallsToAGuestThatTakesNothing(t *testing.T) {
	for name, but := range map[string]int{"nothing": 0, "a part": 5} {
		t.Run(name, func(t *testing.T) {
			c := takingNothing(t, but)
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					if err := c.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) || !guest.Unanswered(ctx, err) {
						t.Errorf("got %v", err)
					}
				})
			}
			ended := make(chan struct{})
			go func() { calls.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Errorf("calls that had 100 ms have not ended after %v", patience)
				_ = c.Close()
				<-ended
			}
		})
	}
}
