package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/containerd/console"
	"github.com/containerd/errdefs"
	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/container"
)

// process is a command that runs in a container.
type process interface {
	Kill(ctx context.Context, signal uint32) error
	Resize(ctx context.Context, width, height uint16) error
}

// forwarded are the signals that are passed on to the command.
var forwarded = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH,
}

// signalError is the cause of a session's end by a signal.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "interrupted by " + unix.SignalName(e.sig) }

// session connects this process's terminal and signals to a command. Until there
// is a command, a signal ends the session's context.
type session struct {
	ctx     context.Context //nolint:containedctx // the session is the context's owner: a signal ends it
	cancel  context.CancelCauseFunc
	signals chan os.Signal
	done    chan struct{}
	console console.Console

	mu         sync.Mutex // guards what follows
	process    process
	interrupts int
}

func newSession(ctx context.Context) *session {
	s := &session{signals: make(chan os.Signal, 16), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	// The relay handles an output whose reader is gone. Notify rather than
	// Ignore: child processes inherit ignored signals, and pasta ends because of
	// it.
	signal.Notify(s.signals, append([]os.Signal{unix.SIGPIPE}, forwarded...)...)
	go s.watch()
	return s
}

// close restores the terminal and the handling of signals.
func (s *session) close() {
	signal.Stop(s.signals)
	close(s.signals)
	<-s.done
	s.cancel(nil)
	if s.console != nil {
		_ = s.console.Reset() // a terminal that is gone cannot be reset
	}
}

// watch passes signals on.
func (s *session) watch() {
	defer close(s.done)
	for sig := range s.signals {
		s.mu.Lock()
		p := s.process
		if sig == unix.SIGINT {
			s.interrupts++
		}
		impatient := s.interrupts > 1
		s.mu.Unlock()
		switch {
		case sig == unix.SIGPIPE:
		case sig == unix.SIGWINCH:
			if p != nil {
				s.resize(p)
			}
		case p == nil && sig != unix.SIGCONT:
			s.cancel(signalError{sig.(syscall.Signal)})
		case p != nil && sig == unix.SIGINT && impatient:
			// A command may ignore the signal: a container's first process does,
			// if it has no handler.
			_ = p.Kill(s.ctx, uint32(unix.SIGKILL)) // it may have ended
		case p != nil:
			_ = p.Kill(s.ctx, uint32(sig.(syscall.Signal))) // it may have ended
		}
	}
}

// attach passes signals on to a command from now on.
func (s *session) attach(p process) {
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	s.resize(p)
}

// resize sets the size of the command's terminal.
func (s *session) resize(p process) {
	if s.console == nil {
		return
	}
	if size, err := s.console.Size(); err == nil {
		_ = p.Resize(s.ctx, size.Width, size.Height) // it may have ended
	}
}

// blame attributes an error to the signal that caused it, with the exit code that
// shells use.
func (s *session) blame(err error) error {
	var by signalError
	if errors.As(context.Cause(s.ctx), &by) {
		return &ExitError{Code: 128 + int(by.sig), Err: fmt.Errorf("%w: %w", by, err)}
	}
	return err
}

// stdio connects a command to this process's streams, as the flags say.
func (s *session) stdio(c *cli.Command) (*container.Stdio, error) {
	if isDetached() {
		return &container.Stdio{}, nil
	}
	stdio := &container.Stdio{Out: os.Stdout, Err: os.Stderr, Broken: s.broken}
	if c.Bool("interactive") {
		stdio.In = os.Stdin
	}
	if !c.Bool("tty") {
		return stdio, nil
	}
	term, err := console.ConsoleFromFile(os.Stdin)
	if err != nil {
		if stdio.In != nil {
			return nil, fmt.Errorf("a terminal was requested, but standard input is not a terminal: %w", errdefs.ErrInvalidArgument)
		}
		return stdio, nil
	}
	s.console = term
	if stdio.In == nil {
		return stdio, nil
	}
	if err := term.SetRaw(); err != nil {
		return nil, fmt.Errorf("set up terminal: %w", err)
	}
	return stdio, nil
}

// broken ends a command whose terminal has no reader any more.
func (s *session) broken() {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p != nil {
		_ = p.Kill(s.ctx, uint32(unix.SIGKILL)) // it may have ended
	}
}
