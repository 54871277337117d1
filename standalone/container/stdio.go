package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/katabox/katabox/shim/client"
)

// closeTimeout bounds the wait for relays whose FIFOs are closed: output that was given
// up may block a write.
const closeTimeout = time.Second

// relayBuffer is how much is copied at a time.
const relayBuffer = 64 << 10

// Stdio are the streams to which a command is connected, by the Wait for its end.
type Stdio struct {
	// In is read to its end, if it is not nil.
	In io.Reader
	// Hold keeps the input open and empty until the command has ended. In is nil then.
	Hold bool
	// Out and Err are written to. A terminal has no Err.
	Out, Err io.Writer
	// Broken is called when a terminal's output has no reader any more, or was hung up.
	// Without a terminal the command gets SIGPIPE when it writes.
	Broken func()
	// Ended is called, if it is not nil, when the command has ended, and only its
	// output is still passed on.
	Ended func()
	// Warn is called, if it is not nil, with what went wrong beside the command. The
	// relays call it, too: it may be called from several goroutines.
	Warn func(string)

	log      *log // of a container, not of an exec
	terminal bool
	fifos    *client.Stdio
	group    sync.WaitGroup // the outputs' relays
	outputs  []*os.File     // what they read
	// writing is how many of them have read what they have not written yet.
	writing atomic.Int32

	mu      sync.Mutex // guards what follows
	dropped []string   // what was said about output that was dropped
}

// open makes the FIFOs in a directory of the bundle.
func (s *Stdio) open(dir, name string, terminal bool) (err error) {
	s.terminal = terminal
	s.fifos, err = client.MakeStdio(filepath.Join(dir, name), client.Wanted{Stdin: s.In != nil || s.Hold, Stdout: true, Stderr: !terminal})
	return err
}

// relay starts copying. closeStdin passes on the input's end. The shim must have
// opened its ends.
func (s *Stdio) relay(closeStdin func()) {
	stdout, stderr := s.fifos.Stdout, s.fifos.Stderr
	s.outputs = append(s.outputs, stdout)
	s.group.Go(func() { s.copyOut(stdoutName, s.Out, stdout) })
	if stderr != nil {
		s.outputs = append(s.outputs, stderr)
		s.group.Go(func() { s.copyOut(stderrName, s.Err, stderr) })
	}
	if s.In == nil {
		return
	}
	stdin := s.fifos.Stdin // close resets the field
	// It ends with the input, or with the process: a read of a terminal cannot be
	// cancelled.
	go func() {
		if _, err := io.CopyBuffer(onlyWriter{stdin}, s.In, make([]byte, relayBuffer)); err == nil {
			closeStdin()
		}
	}()
}

// onlyWriter hides the faster methods that io.Copy would use.
type onlyWriter struct{ io.Writer }

// warn calls Warn; a nil error is ignored.
func (s *Stdio) warn(err error) {
	if err != nil && s.Warn != nil {
		s.Warn(err.Error())
	}
}

// drain waits, after the command's end, until its output was passed on: until the
// outputs have ended, or were quiet for a while, as another process may hold them. It
// waits for a slow reader until ctx ends, and then returns an error: the rest is
// dropped.
func (s *Stdio) drain(ctx context.Context) error {
	if s.Ended != nil {
		s.Ended()
	}
	if err := client.AwaitQuiet(ctx, s.relayed(), s.inTransit, client.Quiet); err != nil {
		return fmt.Errorf("the end of the output was dropped, its reader was too slow: %w", err)
	}
	return nil
}

// relayed returns a channel that is closed when the outputs' relays have ended.
func (s *Stdio) relayed() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.group.Wait()
	}()
	return done
}

// inTransit reports whether there is output that was not passed on yet.
func (s *Stdio) inTransit() bool {
	return s.writing.Load() > 0 || slices.ContainsFunc(s.outputs, pending)
}

// pending reports whether a FIFO has content; one that is closed has none.
func pending(fifo *os.File) (has bool) {
	conn, err := fifo.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Control(func(fd uintptr) { has = client.Pending(int(fd)) > 0 })
	return err == nil && has
}

// close closes the FIFOs, which ends the relays, and removes their names.
func (s *Stdio) close() error {
	err := errors.Join(s.fifos.Close(), s.fifos.Remove())
	select {
	case <-s.relayed():
	case <-time.After(closeTimeout):
	}
	return errors.Join(err, s.log.close())
}
