package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/agent/api"
)

// pipe is a connection in memory.
type pipe struct{ net.Conn }

func (p pipe) CloseWrite() error { return p.Close() }

// Like a call, opening a connection is bounded, whether the guest does not accept
// it or does not answer on it.
func TestOpensAreBounded(t *testing.T) {
	opens := map[string]func(context.Context, *Client) (Conn, error){
		"stream": func(ctx context.Context, c *Client) (Conn, error) {
			conn, _, err := c.OpenStream(ctx, "c1", "e1", api.Stream_STREAM_STDOUT)
			return conn, err
		},
		"forward": func(ctx context.Context, c *Client) (Conn, error) { return c.Forward(ctx, "127.0.0.1:80") },
		"socket": func(ctx context.Context, c *Client) (Conn, error) {
			return c.ForwardSocket(ctx, "c1", "/run/s", false)
		},
		"reverse": func(ctx context.Context, c *Client) (Conn, error) { return c.Reverse(ctx, &api.ReverseOpen{}) },
	}
	guests := map[string]DialFunc{
		"refuses to accept": func(ctx context.Context, _ uint32) (Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"never answers": func(context.Context, uint32) (Conn, error) {
			host, other := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, other) }() // ends when the host closes
			return pipe{host}, nil
		},
	}
	bounds := []struct{ own, takes time.Duration }{{0, CallTimeout}, {time.Hour, time.Hour}, {time.Second, time.Second}}
	for what, open := range opens {
		for how, dial := range guests {
			t.Run(what+" of a guest that "+how, func(t *testing.T) {
				for _, bound := range bounds {
					synctest.Test(t, func(t *testing.T) { testBound(t, &Client{dial: dial}, open, bound.own, bound.takes) })
				}
			})
		}
	}
}

// testBound checks that opening takes that long; own is the caller's bound, 0 is
// none.
func testBound(t *testing.T, c *Client, open func(context.Context, *Client) (Conn, error), own, takes time.Duration) {
	t.Helper()
	ctx := context.Background()
	if own > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, own)
		defer cancel()
	} else {
		// Without the bound the test fails instead of hanging.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(24*time.Hour, cancel).Stop()
	}
	begin := time.Now()
	_, err := open(ctx, c)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != takes {
		t.Errorf("after %v: %v, want a timeout after %v", time.Since(begin), err, takes)
	}
}
