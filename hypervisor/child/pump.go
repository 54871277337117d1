package child

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainGrace bounds the wait for a pipe's end of file after the child's
	// end. It comes immediately, unless the child left a process behind that
	// holds the pipe. What is in the pipe is read in any case: on a busy host
	// the grace may be over before a single read.
	drainGrace = 100 * time.Millisecond
	// pipeBytes is a pipe's capacity (pipe(7)).
	pipeBytes = 64 << 10
)

// pump copies one of the child's output pipes to its sinks.
type pump struct {
	r, w  *os.File
	sinks []io.Writer
	done  chan struct{}
}

type pumps []*pump

// add makes a pipe whose reading end is copied to sinks, and returns its
// writing end.
func (ps *pumps) add(sinks ...io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	*ps = append(*ps, &pump{r: r, w: w, sinks: sinks, done: make(chan struct{})})
	return w, nil
}

// start begins copying; the child holds the writing ends now.
func (ps pumps) start() {
	for _, p := range ps {
		_ = p.w.Close()
		go p.copy()
	}
}

// abandon releases the pipes of a child that did not start.
func (ps pumps) abandon() {
	for _, p := range ps {
		_ = p.w.Close()
		_ = p.r.Close()
	}
}

// finish waits until what the ended child wrote has been read.
func (ps pumps) finish() {
	limit := time.Now().Add(drainGrace)
	for _, p := range ps {
		_ = p.r.SetReadDeadline(limit)
	}
	for _, p := range ps {
		<-p.done
		_ = p.r.Close()
	}
}

func (p *pump) copy() {
	defer close(p.done)
	buf := make([]byte, 8<<10)
	for {
		n, err := p.r.Read(buf)
		p.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.copyRest(buf)
		}
		if err != nil {
			break
		}
	}
	for _, s := range p.sinks {
		if f, ok := s.(interface{ Flush() }); ok {
			f.Flush()
		}
	}
}

// copyRest copies what the pipe holds, and does not wait for more.
func (p *pump) copyRest(buf []byte) {
	raw, err := p.r.SyscallConn()
	if err != nil {
		return // closed
	}
	for left := pipeBytes; left > 0; {
		n := 0
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) })
		if err != nil || n <= 0 {
			return
		}
		p.write(buf[:n])
		left -= n
	}
}

// write gives each sink some output. A sink's error is ignored: the pipe must
// be drained, or the child blocks on it.
func (p *pump) write(output []byte) {
	for _, s := range p.sinks {
		_, _ = s.Write(output)
	}
}
