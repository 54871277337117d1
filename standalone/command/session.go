package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

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

// ending are those of them that a user sends to end the command.
var ending = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}

// killAt is the number of interrupts within interruptTime that kill a container.
const (
	killAt        = 3
	interruptTime = 3 * time.Second
)

// session connects this process's terminal and signals to a command.
type session struct {
	// ctx is for the start of the command. A signal ends it if there is no command yet.
	ctx    context.Context //nolint:containedctx // the session is the context's owner: a signal ends it
	cancel context.CancelCauseFunc
	// waiting is for the wait for the command's end and its output, which only giveUp
	// cancels.
	waiting context.Context //nolint:containedctx // as ctx
	giveUp  context.CancelCauseFunc
	// asking is for calls to the command's shim. It ends with waiting, and with the
	// session, which does not wait for a shim that does not answer.
	asking    context.Context //nolint:containedctx // as ctx
	stopCalls context.CancelFunc
	signals   chan os.Signal
	// calls are calls to the command's shim, in order; done is closed when the
	// goroutines have ended.
	calls chan func()
	done  chan struct{}
	// say is called before interrupts kill the command. It is nil if they do not.
	say func(string)
	// console is nil without a terminal. What is typed there goes to the command if
	// typed is set; the terminal is raw then, which raw says, while there is a command.
	console    console.Console
	typed, raw bool

	mu         sync.Mutex // guards what follows, and the end of ctx by a signal
	process    process
	interrupts []time.Time // those that came lately
	// ended is set when the command has ended, while its output is passed on.
	ended bool
	// asked is when the shim got the call that it has not answered, or zero.
	asked time.Time
}

// newSession returns a session. If say is not nil, interrupts in quick succession kill
// its command; say is called with a warning before.
func newSession(ctx context.Context, say func(string)) *session {
	s := makeSession(ctx, say)
	// The relay handles an output whose reader is gone. Notify rather than
	// Ignore: child processes inherit ignored signals, and pasta ends because of
	// it.
	signal.Notify(s.signals, append(heeded(forwarded...), unix.SIGPIPE)...)
	go s.watch()
	return s
}

// heeded returns those of the signals that this process does not ignore: nohup starts it
// with SIGHUP ignored, a script's shell with SIGINT ignored if it runs in the background.
// signal.Notify ends that, so it must be asked before. For other signals than these two
// Go's runtime does not keep whether they were ignored.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
}

func makeSession(ctx context.Context, say func(string)) *session {
	s := &session{say: say, signals: make(chan os.Signal, 16), calls: make(chan func(), 16), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.waiting, s.giveUp = context.WithCancelCause(context.WithoutCancel(ctx))
	s.asking, s.stopCalls = context.WithCancel(s.waiting)
	return s
}

// close restores the terminal and the handling of signals.
func (s *session) close() {
	signal.Stop(s.signals)
	close(s.signals)
	s.cancel(nil)
	s.stopCalls()
	<-s.done
	s.giveUp(nil)
	if s.raw {
		_ = s.console.Reset() // a terminal that is gone cannot be reset
	}
}

// watch passes signals on. The shim may not answer: a further signal that is to end the
// command then gives it up.
func (s *session) watch() {
	defer close(s.done)
	var calling sync.WaitGroup
	calling.Go(s.call)
	for sig := range s.signals {
		s.handle(sig)
	}
	close(s.calls)
	calling.Wait()
}

// call makes calls to the shim, one after another.
func (s *session) call() {
	for call := range s.calls {
		s.setAsked(time.Now())
		call()
		s.setAsked(time.Time{})
	}
}

func (s *session) setAsked(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = at
}

// handle handles a signal of this process's. It does not block.
func (s *session) handle(sig os.Signal) {
	p, interrupts, deaf := s.note(sig)
	switch {
	case sig == unix.SIGPIPE || p == nil:
	case sig == unix.SIGWINCH:
		s.later(func() { s.resize(s.asking, p) })
	case deaf && slices.Contains(ending, sig):
		s.giveUp(signalError{sig.(syscall.Signal)})
	case sig == unix.SIGINT:
		s.interrupt(p, interrupts)
	default:
		s.later(func() { s.kill(p, sig.(syscall.Signal)) })
	}
}

// interrupt passes SIGINT on. A command may ignore it: a container's first process does, if
// it has no handler. So the third in a short time kills a container, after a warning.
func (s *session) interrupt(p process, count int) {
	s.later(func() {
		sig := unix.SIGINT
		switch {
		case s.say == nil: // the container has other commands
		case count == killAt-1:
			s.say(fmt.Sprintf("the third SIGINT within %v kills the container", interruptTime))
		case count >= killAt:
			sig = unix.SIGKILL
		}
		s.kill(p, sig)
	})
}

// note counts interrupts, and ends the start of a command that is not there yet. It
// returns the command, or nil, how many interrupts came lately, and whether no signal
// reaches the command: it has ended, or its shim does not answer.
func (s *session) note(sig os.Signal) (p process, interrupts int, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig == unix.SIGINT {
		now := time.Now()
		s.interrupts = append(s.interrupts, now)
		s.interrupts = slices.DeleteFunc(s.interrupts, func(t time.Time) bool { return now.Sub(t) >= interruptTime })
	}
	if s.process == nil && sig != unix.SIGPIPE && sig != unix.SIGCONT && sig != unix.SIGWINCH {
		s.cancel(signalError{sig.(syscall.Signal)})
	}
	silent := !s.asked.IsZero() && time.Since(s.asked) >= patience
	return s.process, len(s.interrupts), s.ended || silent
}

// later has call called after those before it. If many of them wait for the shim, the
// signal is lost, as one is that is pending already.
func (s *session) later(call func()) {
	select {
	case s.calls <- call:
	default:
	}
}

// kill sends the command a signal.
func (s *session) kill(p process, sig syscall.Signal) {
	defer saySlow(os.Stderr, patience, "kata-runtime: the container's shim does not answer: the next signal gives it up")()
	_ = p.Kill(s.asking, uint32(sig)) // it may have ended
}

// attach passes signals on to a command from now on: the first is the one that came too
// late to end its start. It does not wait for the shim.
func (s *session) attach(p process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	if late, ok := errors.AsType[signalError](context.Cause(s.ctx)); ok {
		s.later(func() { s.kill(p, late.sig) })
	}
	s.later(func() { s.resize(s.asking, p) })
}

// resize sets the size of the command's terminal.
func (s *session) resize(ctx context.Context, p process) {
	if s.console == nil {
		return
	}
	if size, err := s.console.Size(); err == nil {
		_ = p.Resize(ctx, size.Width, size.Height) // it may have ended
	}
}

// end notes that the command has ended: from now on, a signal that is to end it gives up
// the rest of its output.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// blame attributes an error to the signal that caused it, with the exit code that
// shells use.
func (s *session) blame(err error) error {
	s.mu.Lock()
	ctx := s.ctx
	if s.process != nil {
		ctx = s.waiting
	}
	s.mu.Unlock()
	if by, ok := errors.AsType[signalError](context.Cause(ctx)); ok && err != nil {
		return &ExitError{Code: 128 + int(by.sig), Err: fmt.Errorf("%w: %w", by, err)}
	}
	return err
}

// stdio makes the streams for a command, as the flags say: this process's. It leaves the
// terminal as it is.
func (s *session) stdio(c *cli.Command) (*container.Stdio, error) {
	if isDetached() {
		return &container.Stdio{Hold: c.Bool("interactive")}, nil
	}
	stdio := &container.Stdio{Out: os.Stdout, Err: os.Stderr, Broken: s.broken, Ended: s.end, Warn: warner(c)}
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
	s.console, s.typed = term, stdio.In != nil
	return stdio, nil
}

// setRaw makes the terminal raw, if it is the command's: ^C then is input and no signal.
// It is called once the command runs, so that ^C ends a run whose image is pulled or
// whose machine boots.
func (s *session) setRaw() error {
	if !s.typed {
		return nil
	}
	if err := s.console.SetRaw(); err != nil {
		return fmt.Errorf("set up terminal: %w", err)
	}
	s.raw = true
	return nil
}

// broken ends a command whose terminal has no reader any more.
func (s *session) broken() {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p != nil {
		_ = p.Kill(s.asking, uint32(unix.SIGKILL)) // it may have ended
	}
}
