package virtcontainers

import (
	"context"
	"errors"
	"testing"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// closable is a connection that can only be closed.
type closable struct {
	guest.Conn
	closed int
}

func (c *closable) Close() error {
	c.closed++
	return nil
}

// A stream is closed exactly once by a preparation, unless it was taken.
func TestPreparation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before bool // what is done comes before the streams
		do     func(t *testing.T, p *preparation)
		closed int
	}{
		{"dropped early", true, func(_ *testing.T, p *preparation) { p.drop() }, 1},
		{"dropped late", false, func(_ *testing.T, p *preparation) { p.drop() }, 1},
		{"dropped twice", true, func(_ *testing.T, p *preparation) { p.drop(); p.drop() }, 1},
		{"taken", false, func(t *testing.T, p *preparation) {
			if conns, err := p.take(t.Context()); err != nil || conns.Stdout == nil {
				t.Errorf("taken: %+v, %v", conns, err)
			}
			p.drop()
		}, 0},
		{"dropped and taken", false, func(t *testing.T, p *preparation) {
			p.drop()
			if conns, err := p.take(t.Context()); err == nil {
				t.Errorf("taken: %+v", conns)
			}
		}, 1},
		{"waited for too long", true, func(t *testing.T, p *preparation) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if conns, err := p.take(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("taken: %+v, %v", conns, err)
			}
			p.drop()
		}, 1},
	} {
		conn, hold := new(closable), make(chan struct{})
		p := newPreparation()
		p.begin(func() (Conns, error) {
			<-hold
			return Conns{Stdout: conn}, nil
		})
		if !tt.before {
			close(hold)
			<-p.done
		}
		tt.do(t, p)
		if tt.before {
			close(hold)
			<-p.done
		}
		if conn.closed != tt.closed {
			t.Errorf("%s: closed %d times, want %d", tt.name, conn.closed, tt.closed)
		}
	}
}
