package virtcontainers

import (
	"context"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// IO is the engine's side of one process's stdio. The shim implements it; the
// methods are called in the order in which they stand here, each once, but
// for CloseStdin and Close, which may come at any time and more than once.
type IO interface {
	// Streams says which ends the engine gave. With a terminal there is no
	// stderr.
	Streams() Streams
	// Connect opens the engine's ends and starts copying between them and
	// the guest's. The connections are the IO's from now on, also on an
	// error. It does not block on the engine.
	Connect(conns Conns) error
	// Drain waits until that many bytes of output were passed on to the
	// engine, or the stream has ended, or nobody takes them.
	Drain(ctx context.Context, stdout, stderr uint64)
	// CloseStdin passes on what the engine wrote so far, then the end of
	// file. It does not block.
	CloseStdin()
	// Close ends all copying and closes the engine's ends.
	Close()
}

// Streams names ends of stdio.
type Streams struct{ Stdin, Stdout, Stderr bool }

// Conns are a guest's ends of stdio; those that were not asked for are nil.
type Conns struct{ Stdin, Stdout, Stderr guest.Conn }

func (c Conns) close() {
	for _, conn := range []guest.Conn{c.Stdin, c.Stdout, c.Stderr} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// openConns opens a process's streams in the guest.
func openConns(ctx context.Context, client *guest.Client, containerID, execID string, want Streams) (Conns, error) {
	var conns Conns
	for _, s := range []struct {
		wanted bool
		kind   api.Stream
		conn   *guest.Conn
	}{
		{want.Stdin, api.Stream_STREAM_STDIN, &conns.Stdin},
		{want.Stdout, api.Stream_STREAM_STDOUT, &conns.Stdout},
		{want.Stderr, api.Stream_STREAM_STDERR, &conns.Stderr},
	} {
		if !s.wanted {
			continue
		}
		conn, err := client.OpenStream(ctx, containerID, execID, s.kind)
		if err != nil {
			conns.close()
			return Conns{}, err
		}
		*s.conn = conn
	}
	return conns, nil
}

// streamNames fills the stdio fields of requests to the agent: there, any
// text means that the stream will be connected.
func streamNames(want Streams) (stdin, stdout, stderr string) {
	name := func(wanted bool) string {
		if wanted {
			return "vsock"
		}
		return ""
	}
	return name(want.Stdin), name(want.Stdout), name(want.Stderr)
}
