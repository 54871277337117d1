package virtcontainers

import (
	"cmp"
	"context"
	"sync"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// IO is the engine's side of one process's stdio. The shim implements it; the
// methods are called in the order in which they are listed here, each once,
// except CloseStdin, Close and AwaitEnds, which may be called at any time and repeatedly,
// Park and Rebind, which may be called in turn, and HoldStdin, which may overlap
// with what follows it.
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
	// Park prepares a connected IO for the end of the guest's connections. It
	// stops copying input, and returns how many bytes of input were passed to
	// the guest since the process was created, and whether input follows: it
	// has a connection and has not ended. Input that was read from the engine's
	// end is passed on first, within ctx and a short time. Park keeps the rest
	// for Rebind, and leaves unread input in the engine's end. From now on the
	// end of an output's connection does not end the output. Park fails with
	// errdefs.ErrFailedPrecondition for an IO that is not connected, or closed,
	// and for one whose output the engine did not read between many parks. After
	// an error the IO is not parked.
	Park(ctx context.Context) (stdin uint64, bound bool, err error)
	// Rebind follows Park. It reads an output's new connection once the old one
	// was read to its end: if the engine does not read, the unread data of both is
	// kept. A stream without a new connection ends. The IO owns the connections
	// from now on, even on an error. Rebind fails with
	// errdefs.ErrFailedPrecondition for an IO that is not parked. It does not
	// block.
	Rebind(conns Conns) error
	// Drain waits until that many bytes of output were passed on to the engine,
	// the stream has ended, or the engine no longer reads.
	Drain(ctx context.Context, stdout, stderr uint64)
	// Await is Drain for an engine that may read again, within ctx. It does not
	// wait for a guest that sends nothing, or more than it can have had.
	Await(ctx context.Context, stdout, stderr uint64)
	// CloseStdin passes on what the engine wrote so far, then the end of
	// file; if it is parked, after Rebind. It does not block.
	CloseStdin()
	// Close ends all copying and closes the engine's ends.
	Close()
	// AwaitEnds follows Close. It waits a short time until logger programs have
	// ended, because they may still write to a log.
	AwaitEnds(ctx context.Context)
}

// Streams names ends of stdio.
type Streams struct{ Stdin, Stdout, Stderr bool }

// Conns are the guest's ends of stdio; those that were not requested are nil.
type Conns struct {
	Stdin, Stdout, Stderr guest.Conn
	// StdinSent, StdoutSent and StderrSent are how many bytes of each stream
	// passed on earlier connections, as the guest says: a process that was
	// restored has been created in another sandbox, and its totals (Drain, Park)
	// count from there. Rebind ignores them.
	StdinSent, StdoutSent, StderrSent uint64
}

func (c Conns) close() {
	for _, conn := range []guest.Conn{c.Stdin, c.Stdout, c.Stderr} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// openConns opens a process's streams in the guest.
func (m *machine) openConns(ctx context.Context, containerID, execID string, want Streams) (Conns, error) {
	var conns Conns
	var group sync.WaitGroup
	var errs [3]error
	for i, s := range []struct {
		wanted bool
		kind   api.Stream
		conn   *guest.Conn
		sent   *uint64
		file   func(context.Context) guest.OutputFile
	}{
		{want.Stdin, api.Stream_STREAM_STDIN, &conns.Stdin, &conns.StdinSent, noOutput},
		{want.Stdout, api.Stream_STREAM_STDOUT, &conns.Stdout, &conns.StdoutSent, m.files.NewOutput},
		{want.Stderr, api.Stream_STREAM_STDERR, &conns.Stderr, &conns.StderrSent, m.files.NewOutput},
	} {
		if !s.wanted {
			continue
		}
		group.Go(func() {
			conn, sent, err := m.client.OpenStream(ctx, containerID, execID, s.kind, s.file(ctx))
			if errs[i] = err; err == nil {
				*s.conn, *s.sent = conn, sent
			}
		})
	}
	group.Wait()
	if err := cmp.Or(errs[:]...); err != nil { // one of them is enough
		conns.close()
		return Conns{}, err
	}
	return conns, nil
}

func noOutput(context.Context) guest.OutputFile { return nil }

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
