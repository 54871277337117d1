package container

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/katabox/katabox/shim/client"
)

// drainTimeout bounds the wait for the rest of the output of a container that has
// ended: a reader that does not read must not keep its files.
const drainTimeout = 30 * time.Second

// relayBuffer is how much is copied at a time.
const relayBuffer = 64 << 10

// Stdio are the streams to which a command is connected.
type Stdio struct {
	// In is read to its end, if it is not nil.
	In io.Reader
	// Out and Err are written to. A terminal has no Err.
	Out, Err io.Writer
	// Broken is called when a terminal's output has no reader any more. Without a
	// terminal the command gets SIGPIPE when it writes.
	Broken func()
	// Warn is called, if it is not nil, with what went wrong beside the command.
	Warn func(string)

	log      *log // of a container, not of an exec
	terminal bool
	fifos    *client.Stdio
	group    sync.WaitGroup // the outputs' relays
}

// open makes the FIFOs in a directory of the bundle.
func (s *Stdio) open(dir, name string, terminal bool) (err error) {
	s.terminal = terminal
	s.fifos, err = client.MakeStdio(filepath.Join(dir, name), client.Wanted{Stdin: s.In != nil, Stdout: true, Stderr: !terminal})
	return err
}

// relay starts copying. closeStdin passes on the input's end. The shim must have
// opened its ends.
func (s *Stdio) relay(closeStdin func()) {
	stdout, stderr := s.fifos.Stdout, s.fifos.Stderr
	s.group.Go(func() { s.copyOut("stdout", s.Out, stdout) })
	if stderr != nil {
		s.group.Go(func() { s.copyOut("stderr", s.Err, stderr) })
	}
	if s.In == nil {
		return
	}
	// It ends with the input, or with the process: a read of a terminal cannot be
	// cancelled.
	go func() {
		if _, err := io.CopyBuffer(onlyWriter{s.fifos.Stdin}, s.In, make([]byte, relayBuffer)); err == nil {
			closeStdin()
		}
	}()
}

// onlyWriter hides the faster methods that io.Copy would use.
type onlyWriter struct{ io.Writer }

// copyOut copies one output until its end. Output that cannot be written is still
// read, so that the command does not block.
func (s *Stdio) copyOut(name string, to io.Writer, from io.ReadCloser) {
	buf := make([]byte, relayBuffer)
	for {
		n, err := from.Read(buf)
		s.log.write(name, buf[:n])
		if n > 0 && to != nil {
			if _, err := to.Write(buf[:n]); err != nil {
				to = nil
				s.lost(err, from)
			}
		}
		if err != nil {
			return
		}
	}
}

// lost is called when an output cannot be written to any more. A FIFO without a
// reader becomes a pipe without one in the guest.
func (s *Stdio) lost(why error, fifo io.Closer) {
	switch {
	case !errors.Is(why, syscall.EPIPE):
	case !s.terminal:
		_ = fifo.Close()
	case s.Broken != nil:
		s.Broken()
	}
}

// warn calls Warn; a nil error is ignored.
func (s *Stdio) warn(err error) {
	if err != nil && s.Warn != nil {
		s.Warn(err.Error())
	}
}

// drain waits until the outputs have ended.
func (s *Stdio) drain() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.group.Wait()
	}()
	select {
	case <-done:
	case <-time.After(drainTimeout):
	}
}

// close closes the FIFOs, which ends the relays, and removes their names.
func (s *Stdio) close() error {
	err := errors.Join(s.fifos.Close(), s.fifos.Remove())
	s.drain()
	return errors.Join(err, s.log.close())
}
