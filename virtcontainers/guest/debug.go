package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/relay"
)

// DebugConsole is a connection to the guest's debug console that nothing was sent
// on yet.
type DebugConsole struct{ conn Conn }

// NewDebugConsole makes conn a DebugConsole, which owns it.
func NewDebugConsole(conn Conn) *DebugConsole { return &DebugConsole{conn} }

// Join passes bytes between the console and a client, who makes it a DebugSession,
// until either has ended or ctx is done. It closes both.
func (d *DebugConsole) Join(ctx context.Context, client Conn) error {
	return relay.Join(ctx, client, d.conn)
}

// Close closes a console that was not joined.
func (d *DebugConsole) Close() error { return d.conn.Close() }

// DialDebug connects to the guest's debug console.
func (c *Client) DialDebug(ctx context.Context) (*DebugConsole, error) {
	leave, err := c.enter(ctx, "a connection to the debug console")
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, err := c.dial(ctx, api.PortDebug)
	if err != nil {
		return nil, fmt.Errorf("open the guest's debug console: %w", err)
	}
	return NewDebugConsole(conn), nil
}

// DebugProcess is a process to be run in the guest itself.
type DebugProcess struct {
	// Args are the program and its arguments; none is a shell.
	Args []string
	// Terminal gives it a terminal of the type Term, and of that size.
	Terminal      bool
	Term          string
	Rows, Columns uint32
}

// DebugSession is a process that runs in the guest. Receive is called by one
// goroutine; the other methods may be called from several.
type DebugSession struct{ conn net.Conn }

// debugOpenTimeout bounds the wait for the agent's answer.
const debugOpenTimeout = 20 * time.Second

// OpenDebug starts a process by a connection to the debug console. The connection
// stays the caller's, and its end kills the process.
func OpenDebug(conn net.Conn, p DebugProcess) (*DebugSession, error) {
	if err := conn.SetDeadline(time.Now().Add(debugOpenTimeout)); err != nil {
		return nil, fmt.Errorf("open debug session: %w", err)
	}
	open := &api.DebugOpen{Args: p.Args, Terminal: p.Terminal, Term: p.Term, Rows: p.Rows, Columns: p.Columns}
	if err := api.WriteFrame(conn, open); err != nil {
		return nil, fmt.Errorf("open debug session: %w", err)
	}
	var opened api.DebugOpened
	if err := api.ReadFrame(conn, &opened); err != nil {
		return nil, fmt.Errorf("open debug session: %w", err)
	}
	if opened.GetError() != "" {
		return nil, errors.New(opened.GetError())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("open debug session: %w", err)
	}
	return &DebugSession{conn}, nil
}

// Write sends input, in as many parts as it takes.
func (s *DebugSession) Write(data []byte) (int, error) {
	for sent := 0; sent < len(data); {
		part := data[sent:min(len(data), sent+api.MaxDebugData)]
		if err := s.send(&api.DebugInput{Data: part}); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return len(data), nil
}

// CloseInput ends the input of a process without a terminal.
func (s *DebugSession) CloseInput() error { return s.send(&api.DebugInput{End: true}) }

// Resize changes the terminal's size.
func (s *DebugSession) Resize(rows, columns uint32) error {
	return s.send(&api.DebugInput{Rows: rows, Columns: columns})
}

func (s *DebugSession) send(in *api.DebugInput) error {
	if err := api.WriteFrame(s.conn, in); err != nil {
		return fmt.Errorf("send to debug session: %w", err)
	}
	return nil
}

// Receive returns the next output, at most 4 KiB, and when the process has ended
// its status.
func (s *DebugSession) Receive() (data []byte, exited bool, status uint8, err error) {
	var out api.DebugOutput
	if err := api.ReadFrame(s.conn, &out); err != nil {
		return nil, false, 0, fmt.Errorf("read from debug session: %w", err)
	}
	return out.GetData(), out.GetExited(), uint8(out.GetStatus()), nil
}
