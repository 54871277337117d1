package stream

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/pty"
)

// Request says which streams of a process the host will bind. A stream that is
// not requested is /dev/null; a terminal's output that is not requested is
// discarded.
type Request struct {
	Terminal              bool
	Stdin, Stdout, Stderr bool
}

// Files are the process's ends: all nil for a terminal.
type Files struct {
	Stdin, Stdout, Stderr *os.File
}

// Close closes the files that are not nil.
func (f Files) Close() {
	for _, file := range []*os.File{f.Stdin, f.Stdout, f.Stderr} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// Stdio is the stdio of one process. Its methods may be called from any
// goroutine.
type Stdio struct {
	request Request
	child   Files
	stdin   *input  // nil if not requested, but never for a terminal
	stdout  *output // likewise
	stderr  *output // nil if not requested
	pumps   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	console *os.File // a terminal's master end, once there is one
	held    *os.File // its process's end, until Ended
	size    Size     // requested before there was one
	started Size     // of those, what the process was started with
}

// New makes the pipes that req needs. The caller must Close it.
func New(req Request) (*Stdio, error) {
	s := &Stdio{request: req}
	if req.Terminal {
		s.request.Stderr = false // A terminal's output is all stdout.
		s.stdin, s.stdout = newTerminalInput(), newTerminalOutput()
		return s, nil
	}
	if err := s.makePipes(); err != nil {
		s.child.Close()
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stdio) makePipes() (err error) {
	var in *os.File
	var out, errs *watched
	if s.child.Stdin, in, err = pipeIn(s.request.Stdin); err != nil {
		return err
	}
	if in != nil {
		s.stdin = newInput(in)
	}
	if out, s.child.Stdout, err = pipeOut(s.request.Stdout); err != nil {
		return err
	}
	if out != nil {
		s.stdout = newOutput(out)
	}
	if errs, s.child.Stderr, err = pipeOut(s.request.Stderr); err != nil {
		return err
	}
	if errs != nil {
		s.stderr = newOutput(errs)
	}
	return nil
}

// Child returns the process's ends. The caller closes them once the process has
// duplicates: until then no stream can end.
func (s *Stdio) Child() Files { return s.child }

// Terminal reports whether the process gets a terminal.
func (s *Stdio) Terminal() bool { return s.request.Terminal }

// SetConsole sets the terminal's master end, which Stdio then owns, also if it fails.
// The terminal gets a size that was requested while its process was being started.
func (s *Stdio) SetConsole(master *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(errClosed, master.Close())
	}
	if s.size != s.started {
		if err := resize(master, s.size); err != nil {
			return errors.Join(err, master.Close())
		}
	}
	console, err := outOfPoller(master)
	if err != nil {
		return err
	}
	to, err := watch(console, unix.EPOLLOUT)
	if err != nil {
		return errors.Join(err, console.Close())
	}
	from, err := watch(console, unix.EPOLLIN)
	if err != nil {
		return errors.Join(err, to.Close())
	}
	s.console, s.held = console, hold(console)
	s.stdin.setTerminal(to)
	s.stdout.setTerminal(from)
	if !s.request.Stdout {
		s.pumps.Go(s.stdout.drop())
	}
	return nil
}

// hold returns a terminal's other end. While it is open the terminal's output does not
// end, although all processes close the terminal: they may open it again, as
// /dev/console. It is nil if it cannot be opened: then the output ends with its last
// user.
func hold(console *os.File) *os.File {
	held, err := pty.OpenSlave(console)
	if err != nil {
		log.L.WithError(err).Warn("a terminal's output ends when all processes have closed it")
		return nil
	}
	return held
}

// Ended is called when the process has ended: a terminal's output then ends once no
// other process has the terminal open.
func (s *Stdio) Ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGo()
}

// letGo closes the end that is held. mu is held.
func (s *Stdio) letGo() {
	_ = s.held.Close() // A nil file has no effect.
	s.held = nil
}

// CloseStdin ends the process's input after what has arrived so far. It does
// nothing to a terminal, whose input has no end.
func (s *Stdio) CloseStdin() {
	if !s.request.Terminal && s.stdin != nil {
		s.stdin.end()
	}
}

// Size is a terminal's size, in characters.
type Size struct{ Width, Height uint16 }

// StartSize returns the size to start the process with, which was requested before;
// ok is false if none was.
func (s *Stdio) StartSize() (size Size, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = s.size
	return s.size, s.size != Size{}
}

// Resize sets the size of the terminal in characters. Before there is one the size is
// stored for it.
func (s *Stdio) Resize(width, height uint16) error {
	s.mu.Lock()
	master := s.console
	early := master == nil && s.request.Terminal && !s.closed
	if early {
		s.size = Size{width, height}
	}
	s.mu.Unlock()
	if early {
		return nil
	}
	if master == nil {
		return fmt.Errorf("resize: process has no terminal: %w", errdefs.ErrFailedPrecondition)
	}
	return resize(master, Size{width, height})
}

func resize(terminal *os.File, size Size) error {
	if err := pty.Resize(terminal, uint(size.Height), uint(size.Width)); err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Totals returns the number of bytes that were written to stdout and stderr so
// far, whether or not they have been sent to the host.
func (s *Stdio) Totals() (stdout, stderr uint64) {
	if s.stdout != nil {
		stdout = s.stdout.total()
	}
	if s.stderr != nil {
		stderr = s.stderr.total()
	}
	return stdout, stderr
}

// Close ends every stream immediately and waits for the copying to stop. It
// does not close the process's ends.
func (s *Stdio) Close() {
	s.mu.Lock()
	s.closed = true
	s.letGo()
	s.mu.Unlock()
	if s.stdin != nil {
		s.stdin.close()
	}
	for _, o := range []*output{s.stdout, s.stderr} {
		if o != nil {
			o.close()
		}
	}
	s.pumps.Wait()
}
