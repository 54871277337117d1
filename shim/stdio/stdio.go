package stdio

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// Paths are the engine's ends of stdio as named in a request; an empty path means
// that the stream is not wanted.
type Paths struct {
	Stdin, Stdout, Stderr string
	// Terminal: stdout is the terminal's output. A stderr that was named carries
	// nothing and is not opened.
	Terminal bool
	// ReadersStay: the engine has opened its ends of the FIFOs before and does
	// not open any later (iSulad). When its ends are closed, output is dropped
	// instead of waiting for another reader.
	ReadersStay bool
	// PipesBreak, with ReadersStay: the process gets SIGPIPE when its reader is
	// gone, unless it has a terminal.
	PipesBreak bool
	// Namespace and LoggerID are for a logger: LoggerID is the process's, an exec's or its
	// container's.
	Namespace, LoggerID string
}

// stalled is how long Drain waits for a reader that does not read.
const stalled = 2 * time.Second

// drainLimit is how long Drain waits altogether, however slowly output still
// comes: the guest reports how much there is, and must not be able to delay the
// exit of a process that was killed.
const drainLimit = 30 * time.Second

// mostHeld is more than a guest can hold of the output of a process that has ended: a
// pipe of up to 1 MiB, 2 MiB in its output's file, and smaller blocks and connections
// (docs/stdio.md). Await waits for at most that many bytes, whatever the guest announces.
const mostHeld = 4 << 20

// IO implements virtcontainers.IO.
type IO struct {
	paths Paths

	out, err *output
	copying  sync.WaitGroup // the two outputs

	mu    sync.Mutex // guards what follows
	phase phase
	in    *input // nil without one, and before Connect
	// outputs are the engine's open ends of the outputs, and loggers those of them
	// that are programs, also once they are closed.
	outputs []closer
	loggers []*logger
	// closeInput is set if CloseStdin was called before Connect.
	closeInput bool
}

// phase is how far an IO is:
//
//	      Connect                    Park                   Rebind
//	[new] ------> [connecting] > [connected] > [parking] > [parked] ----> [connected]
//
// Close, or a Connect that fails, leads from each to [closed].
type phase int

const (
	phaseNew phase = iota
	phaseConnecting
	phaseConnected
	phaseParking
	phaseParked
	phaseClosed
)

type closer interface{ Close() error }

var _ virtcontainers.IO = (*IO)(nil)

// New checks the paths; it opens nothing.
func New(paths Paths) (*IO, error) {
	if err := checkEnd(paths.Stdin, schemeFIFO); err != nil {
		return nil, fmt.Errorf("stdin: %w", err)
	}
	for _, path := range []string{paths.Stdout, paths.Stderr} {
		if err := checkEnd(path, schemeFIFO, schemeFile, schemeBinary, schemeBinaryV2); err != nil {
			return nil, fmt.Errorf("stdout or stderr: %w", err)
		}
	}
	breaks := paths.ReadersStay && paths.PipesBreak && !paths.Terminal
	return &IO{paths: paths, out: newOutput(breaks), err: newOutput(breaks)}, nil
}

// Streams implements virtcontainers.IO.
func (i *IO) Streams() virtcontainers.Streams {
	return virtcontainers.Streams{
		Stdin:  i.paths.Stdin != "",
		Stdout: i.paths.Stdout != "",
		Stderr: i.paths.Stderr != "" && !i.paths.Terminal,
	}
}

// Connect implements virtcontainers.IO.
func (i *IO) Connect(conns virtcontainers.Conns) error {
	if err := i.beginConnect(); err != nil {
		closeConns(conns)
		return fmt.Errorf("connect stdio: %w", err)
	}
	engine, err := i.openEnds() // may wait for a logger to be ready
	i.mu.Lock()
	defer i.mu.Unlock()
	i.outputs, i.loggers = engine.outputs, engine.loggers
	if err == nil && i.phase == phaseClosed {
		err = errClosed
	}
	if err != nil {
		closeConns(conns)
		if engine.stdin != nil {
			_ = engine.stdin.Close()
		}
		i.closeAll()
		return fmt.Errorf("connect stdio: %w", err)
	}
	i.phase = phaseConnected
	i.startOutput(i.out, conns.Stdout, engine.stdout, conns.StdoutSent)
	i.startOutput(i.err, conns.Stderr, engine.stderr, conns.StderrSent)
	if conns.Stdin != nil {
		i.startInput(conns.Stdin, engine.stdin, conns.StdinSent)
	}
	go i.closeAfterOutput()
	return nil
}

var errClosed = fmt.Errorf("it was closed or connected before: %w", errdefs.ErrFailedPrecondition)

// beginConnect admits one Connect.
func (i *IO) beginConnect() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.phase != phaseNew {
		return errClosed
	}
	i.phase = phaseConnecting
	return nil
}

func closeConns(conns virtcontainers.Conns) {
	for _, conn := range []guest.Conn{conns.Stdin, conns.Stdout, conns.Stderr} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

func (i *IO) startInput(conn guest.Conn, fifo *os.File, sent uint64) {
	i.in = newInput(fifo, conn, sent)
	go i.in.run()
	if i.closeInput {
		i.in.finish()
	}
}

func (i *IO) startOutput(o *output, conn guestStream, fifo *os.File, sent uint64) {
	if conn != nil {
		o.begin(conn, sent)
	}
	if conn == nil || fifo == nil {
		o.end()
		return
	}
	i.copying.Go(func() { o.run(fifo) })
}

// closeAfterOutput closes the engine's output ends, together, once nothing can be
// written to them any more and what was written has a reader. Input continues.
func (i *IO) closeAfterOutput() {
	i.copying.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.releaseReads()
	i.awaitReader()
	i.closeOutputs()
}

// Drain implements virtcontainers.IO.
func (i *IO) Drain(ctx context.Context, stdout, stderr uint64) {
	i.await(ctx, stdout, stderr, false)
}

// Await implements virtcontainers.IO.
func (i *IO) Await(ctx context.Context, stdout, stderr uint64) {
	i.await(ctx, i.out.within(stdout), i.err.within(stderr), true)
}

func (i *IO) await(ctx context.Context, stdout, stderr uint64, patient bool) {
	i.mu.Lock()
	phase := i.phase
	i.mu.Unlock()
	if phase < phaseConnected || phase == phaseClosed {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { i.out.await(ctx, stdout, patient) })
	both.Go(func() { i.err.await(ctx, stderr, patient) })
	both.Wait()
}

// HoldStdin implements virtcontainers.IO. iSulad's and kata-runtime's ends cannot
// be opened again: their close is the end.
func (i *IO) HoldStdin() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.in == nil || i.phase == phaseClosed || i.closeInput || i.paths.ReadersStay {
		return nil
	}
	if err := i.in.hold(); err != nil {
		return fmt.Errorf("hold stdin open: %w", err)
	}
	return nil
}

// CloseStdin implements virtcontainers.IO.
func (i *IO) CloseStdin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closeInput = true
	if i.in != nil {
		i.in.finish()
	}
}

// Close implements virtcontainers.IO.
func (i *IO) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closeAll()
}

// endsWait is how long AwaitEnds takes at most. A logger that ends with its input has
// written it by then; the others get their signals later (reap), and no call waits for
// that.
const endsWait = 2 * time.Second

// AwaitEnds implements virtcontainers.IO.
func (i *IO) AwaitEnds(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWait)
	defer cancel()
	i.mu.Lock()
	loggers := i.loggers
	i.mu.Unlock()
	for _, l := range loggers {
		l.awaitEnd(ctx)
	}
}

// closeAll must be called with mu held. It does not block: FIFOs and connections
// are non-blocking underneath.
func (i *IO) closeAll() {
	i.phase = phaseClosed
	if i.in != nil {
		i.in.close()
	}
	i.out.close()
	i.err.close()
	i.closeOutputs()
}

// closeOutputs must be called with mu held. An error means that the other side
// closed first.
func (i *IO) closeOutputs() {
	for _, c := range i.outputs {
		_ = c.Close()
	}
	i.outputs = nil
}

// Paths returns the engine's ends as they were given to New.
func (i *IO) Paths() Paths { return i.paths }
