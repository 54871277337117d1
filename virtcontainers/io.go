package virtcontainers

import (
	"context"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// IO is the engine's side of one process's stdio. The shim implements it; the
// methods are called in the order in which they are listed here, each once,
// except CloseStdin and Close, which may be called at any time and repeatedly,
// and HoldStdin, which may overlap with what follows it.
type IO interface {
	// Streams returns which streams the engine provided. With a terminal there
	// is no stderr.
	Streams() Streams
	// Connect opens the engine's ends and starts copying between them and the
	// guest's. The IO owns the connections from now on, even on an error. It
	// does not block on the engine.
	Connect(conns Conns) error
	// HoldStdin is called when the process was started. From now on only
	// CloseStdin ends its input: the engine's end closes with the engine, which
	// may come back. It does not block.
	HoldStdin() error
	// Drain waits until that many bytes of output were passed on to the engine,
	// the stream has ended, or the engine no longer reads.
	Drain(ctx context.Context, stdout, stderr uint64)
	// CloseStdin passes on what the engine wrote so far, then the end of
	// file. It does not block.
	CloseStdin()
	// Close ends all copying and closes the engine's ends.
	Close()
}

// Streams names ends of stdio.
type Streams struct{ Stdin, Stdout, Stderr bool }

// Conns are the guest's ends of stdio; those that were not requested are nil.
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

// streamNames returns the stdio fields of requests to the agent, where any text
// means that the stream will be connected.
func streamNames(want Streams) (stdin, stdout, stderr string) {
	name := func(wanted bool) string {
		if wanted {
			return "vsock"
		}
		return ""
	}
	return name(want.Stdin), name(want.Stdout), name(want.Stderr)
}
