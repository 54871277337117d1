package stdio

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// Paths are the engine's ends of stdio as a request names them; an empty one
// is not wanted.
type Paths struct {
	Stdin, Stdout, Stderr string
	// Terminal: stdout is the terminal's output, and stderr carries nothing
	// but is held open if it was named.
	Terminal bool
}

// stalled is how long Drain waits for a reader that takes nothing.
const stalled = 2 * time.Second

// IO implements virtcontainers.IO.
type IO struct {
	paths Paths

	in       *input
	out, err *output
	copying  sync.WaitGroup // the two outputs

	mu sync.Mutex // guards what follows
	// inputs and outputs are the open ends of either side.
	inputs, outputs []closer
	// closeInput is set when CloseStdin came before Connect.
	closeInput, connected, closed bool
}

type closer interface{ Close() error }

var _ virtcontainers.IO = (*IO)(nil)

// New checks the paths and opens nothing.
func New(paths Paths) (*IO, error) {
	for name, path := range map[string]string{"stdin": paths.Stdin, "stdout": paths.Stdout, "stderr": paths.Stderr} {
		if err := checkScheme(path); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return &IO{paths: paths, out: newOutput(), err: newOutput()}, nil
}

func checkScheme(path string) error {
	u, err := url.Parse(path)
	if err != nil {
		return fmt.Errorf("%q is neither a path nor a URI: %w", path, errdefs.ErrInvalidArgument)
	}
	if u.Scheme != "" && u.Scheme != "fifo" {
		return fmt.Errorf("%q: only FIFOs are supported: %w", path, errdefs.ErrNotImplemented)
	}
	return nil
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
	i.mu.Lock()
	defer i.mu.Unlock()
	i.adopt(conns)
	if i.closed || i.connected {
		i.closeAll()
		return fmt.Errorf("connect stdio: it was closed or connected before: %w", errdefs.ErrFailedPrecondition)
	}
	i.connected = true
	fifos, err := i.openFIFOs()
	if err != nil {
		i.closeAll()
		return fmt.Errorf("connect stdio: %w", err)
	}
	i.startOutput(i.out, conns.Stdout, fifos.stdout)
	i.startOutput(i.err, conns.Stderr, fifos.stderr)
	if conns.Stdin != nil {
		i.startInput(conns.Stdin, fifos.stdin)
	}
	go i.closeAfterOutput()
	return nil
}

// adopt notes the connections that Close closes.
func (i *IO) adopt(conns virtcontainers.Conns) {
	if conns.Stdin != nil {
		i.inputs = append(i.inputs, conns.Stdin)
	}
	if conns.Stdout != nil {
		i.outputs = append(i.outputs, conns.Stdout)
	}
	if conns.Stderr != nil {
		i.outputs = append(i.outputs, conns.Stderr)
	}
}

// fifos are the engine's open ends; nil where it named none.
type fifos struct{ stdin, stdout, stderr *os.File }

func (i *IO) openFIFOs() (f fifos, err error) {
	for _, end := range []struct {
		path string
		flag int
		file **os.File
		kept *[]closer
	}{
		{i.paths.Stdin, os.O_RDONLY, &f.stdin, &i.inputs},
		{i.paths.Stdout, os.O_RDWR, &f.stdout, &i.outputs},
		{i.paths.Stderr, os.O_RDWR, &f.stderr, &i.outputs},
	} {
		if end.path == "" {
			continue
		}
		if *end.file, err = openFIFO(end.path, end.flag); err != nil {
			return fifos{}, err
		}
		*end.kept = append(*end.kept, *end.file)
	}
	return f, nil
}

func (i *IO) startInput(conn guest.Conn, fifo *os.File) {
	i.in = newInput(fifo, conn)
	go i.in.run()
	if i.closeInput {
		i.in.finish()
	}
}

func (i *IO) startOutput(o *output, conn reader, fifo *os.File) {
	if conn == nil || fifo == nil {
		o.end()
		return
	}
	i.copying.Go(func() { o.copy(fifo, conn) })
}

// closeAfterOutput closes the engine's output ends, together, once nothing
// can be written to them any more. Input goes on.
func (i *IO) closeAfterOutput() {
	i.copying.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	closeEnds(&i.outputs)
}

// Drain implements virtcontainers.IO.
func (i *IO) Drain(ctx context.Context, stdout, stderr uint64) {
	i.mu.Lock()
	connected := i.connected
	i.mu.Unlock()
	if !connected {
		return
	}
	i.out.await(ctx, stdout)
	i.err.await(ctx, stderr)
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

// closeAll must be called with mu held.
func (i *IO) closeAll() {
	i.closed = true
	closeEnds(&i.inputs)
	closeEnds(&i.outputs)
}

// closeEnds does not block: FIFOs and connections are non-blocking
// underneath. Errors mean that the other side went first.
func closeEnds(ends *[]closer) {
	for _, c := range *ends {
		_ = c.Close()
	}
	*ends = nil
}

// Paths are the engine's ends as New got them.
func (i *IO) Paths() Paths { return i.paths }
