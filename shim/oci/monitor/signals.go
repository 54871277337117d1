package monitor

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// signals forwards the signals of this process to the container's.
type signals struct {
	came chan os.Signal
	done chan struct{}
}

// notPassedOn are the signals that concern this process alone: those of its
// children (it has none), of Go's scheduler, of its writes, and SIGCONT, because
// SIGSTOP cannot be caught and passed on either.
var notPassedOn = map[syscall.Signal]bool{unix.SIGCHLD: true, unix.SIGURG: true, unix.SIGPIPE: true, unix.SIGCONT: true}

// jobs are the signals by which a terminal stops a job in the background that reads it or
// writes to it. They must stop the job: the kernel repeats the call when a caught one has
// been handled, and sends the next.
var jobs = map[syscall.Signal]bool{unix.SIGTTIN: true, unix.SIGTTOU: true}

// caught are the signals that are passed on.
func caught(job bool) (all []os.Signal) {
	for n := syscall.Signal(1); n < 65; n++ {
		switch {
		case notPassedOn[n], job && jobs[n], n == unix.SIGKILL, n == unix.SIGSTOP:
		case n == 32, n == 33: // the C library's own (nptl(7))
		default:
			all = append(all, n)
		}
	}
	return all
}

// catch starts passing signals on, in order, and tells the process the terminal's
// size.
func catch(s *session) *signals {
	c := &signals{came: make(chan os.Signal, 64), done: make(chan struct{})}
	signal.Ignore(unix.SIGPIPE)
	signal.Notify(c.came, caught(s.job)...)
	if s.cfg.Terminal {
		c.came <- unix.SIGWINCH // sends the current size
	}
	go c.run(s)
	return c
}

func (c *signals) run(s *session) {
	for {
		select {
		case sig := <-c.came:
			s.pass(sig)
		case <-c.done:
			return
		}
	}
}

func (c *signals) stop() {
	signal.Stop(c.came)
	close(c.done)
}

// pass forwards one signal. If the process has ended, it ends the wait for the reader of
// its output. Other errors are ignored: the process may not have started yet.
func (s *session) pass(sig os.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if number == unix.SIGWINCH && s.cfg.Terminal {
		s.resize(ctx)
		return
	}
	_, err := s.shim.Kill(ctx, &task.KillRequest{ID: s.cfg.ID, ExecID: s.cfg.ExecID, Signal: uint32(number)})
	switch {
	case !endsProcess(number):
	case errdefs.IsNotFound(err):
		s.impatience.set()
	case err == nil || errdefs.IsUnavailable(err): // its shim may have ended
		s.impatience.passed()
	}
}

// resize tells the process the size of this terminal, if it has one yet.
func (s *session) resize(ctx context.Context) {
	size, err := unix.IoctlGetWinsize(s.streams.host[0], unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 && size.Col == 0 {
		return
	}
	_, _ = s.shim.ResizePty(ctx, &task.ResizePtyRequest{
		ID: s.cfg.ID, ExecID: s.cfg.ExecID, Width: uint32(size.Col), Height: uint32(size.Row),
	})
}
