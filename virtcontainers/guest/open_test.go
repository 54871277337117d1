package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
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
			conn, _, err := c.OpenStream(ctx, "c1", "e1", api.Stream_STREAM_STDOUT, nil)
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

// hangsUp is a guest that closes a connection without an answer.
func hangsUp(context.Context, uint32) (Conn, error) {
	host, other := net.Pipe()
	go func() {
		_ = api.ReadFrame(other, new(api.ForwardOpen))
		_ = other.Close()
	}()
	return pipe{host}, nil
}

func refuses(context.Context, uint32) (Conn, error) { return nil, syscall.ECONNREFUSED }

func resets(context.Context, uint32) (Conn, error) { return nil, syscall.ECONNRESET }

// answers is a guest that answers with that error, or opens the connection.
func answers(refusal string) DialFunc {
	return func(context.Context, uint32) (Conn, error) {
		host, other := net.Pipe()
		go func() {
			defer other.Close()
			if api.ReadFrame(other, new(api.ForwardOpen)) == nil {
				_ = api.WriteFrame(other, &api.ForwardOpened{Error: refusal})
			}
		}()
		return pipe{host}, nil
	}
}

// A connection that the guest has not heard is opened again: its queue was full, or it
// made room for others.
func TestOpensAgain(t *testing.T) {
	for name, first := range map[string]DialFunc{"refused": refuses, "reset": resets, "closed": hangsUp} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := []DialFunc{first, first, answers("")}
				c := &Client{dial: func(ctx context.Context, port uint32) (Conn, error) {
					dial := dials[0]
					dials = dials[1:]
					return dial(ctx, port)
				}}
				conn, err := c.Forward(t.Context(), "127.0.0.1:80")
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			})
		})
	}
}

// A refusal on a later try has the first error too, whose connection the guest may have
// heard.
func TestRefusedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := []DialFunc{hangsUp, refuses, answers("it is connected already")}
		c := &Client{dial: func(ctx context.Context, port uint32) (Conn, error) {
			dial := dials[0]
			dials = dials[1:]
			return dial(ctx, port)
		}}
		_, err := c.Forward(t.Context(), "127.0.0.1:80")
		if !errors.Is(err, RefusedError("it is connected already")) || !strings.Contains(err.Error(), "(the first try: read frame length: EOF)") {
			t.Errorf("%v, want the refusal and the first error", err)
		}
		if Disconnected(err) {
			t.Errorf("%v: a guest that refuses is there", err)
		}
	})
}

// The guest's own refusal is final. A guest that never hears is given up soon.
func TestOpensAgainIsBounded(t *testing.T) {
	tests := map[string]struct {
		dial    DialFunc
		want    error
		atMost  time.Duration
		onlyOne bool
	}{
		"the agent refuses":  {answers("no"), RefusedError("no"), 0, true},
		"the port refuses":   {refuses, syscall.ECONNREFUSED, 5 * time.Second, false},
		"the guest hangs up": {hangsUp, io.EOF, 5 * time.Second, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				c := &Client{dial: func(ctx context.Context, port uint32) (Conn, error) {
					tries++
					return tt.dial(ctx, port)
				}}
				begin := time.Now()
				_, err := c.Forward(t.Context(), "127.0.0.1:80")
				if took := time.Since(begin); !errors.Is(err, tt.want) || took > tt.atMost || (tries == 1) != tt.onlyOne {
					t.Errorf("%v after %v and %d tries, want %v", err, took, tries, tt.want)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				begin = time.Now()
				if _, err := c.Forward(ctx, "127.0.0.1:80"); !errors.Is(err, tt.want) || time.Since(begin) > time.Millisecond {
					t.Errorf("with a bound of 1 ms: %v after %v", err, time.Since(begin))
				}
			})
		})
	}
}
