package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// restartPause is the time between a service's end and its next start, as
// systemd's RestartSec.
const restartPause = 100 * time.Millisecond

// service is a program that is started again whenever it ends.
type service struct {
	name    string
	command func() *exec.Cmd
	probe   func(context.Context) error
	logPath string

	mu       sync.Mutex
	child    *harness.Child
	starts   int
	stopping bool
	done     chan struct{} // closed when the service is no longer watched
}

func (s *service) start() error {
	s.done = make(chan struct{})
	child, err := s.launch()
	if err != nil {
		return err
	}
	go s.watch(child)
	return nil
}

func (s *service) launch() (*harness.Child, error) {
	child, err := harness.StartChild(s.command(), s.logPath)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = child
	s.starts++
	return child, nil
}

// watch starts the program again until the service is stopped.
func (s *service) watch(child *harness.Child) {
	defer close(s.done)
	for {
		<-child.Done()
		if s.isStopping() {
			return
		}
		time.Sleep(restartPause)
		if s.isStopping() {
			return
		}
		next, err := s.launch()
		if err != nil {
			fmt.Fprintf(os.Stderr, "start %s again: %v\n", s.name, err)
			return
		}
		child = next
	}
}

func (s *service) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *service) current() (*harness.Child, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child, s.starts
}

// Ready waits until the service answers.
func (s *service) Ready(ctx context.Context) error {
	child, _ := s.current()
	return child.Ready(ctx, s.probe)
}

// again ends the program by a signal and waits until it has been started again.
func (s *service) again(ctx context.Context, signal unix.Signal) error {
	child, starts := s.current()
	if err := unix.Kill(child.PID(), signal); err != nil {
		return fmt.Errorf("end %s: %w", s.name, err)
	}
	for {
		if _, now := s.current(); now > starts {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the next start of %s: %w", s.name, ctx.Err())
		case <-time.After(restartPause / 10):
		}
	}
}

// hold kills the program, which is not started again before release.
func (s *service) hold(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	child := s.child
	s.mu.Unlock()
	if err := unix.Kill(child.PID(), unix.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", s.name, ctx.Err())
	}
}

// release starts the program that hold has killed.
func (s *service) release() error {
	s.mu.Lock()
	s.stopping = false
	s.mu.Unlock()
	return s.start()
}

// stop ends the program for good.
func (s *service) stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	child := s.child
	s.mu.Unlock()
	err := child.Stop(ctx)
	select {
	case <-s.done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("stop %s: %w", s.name, ctx.Err()))
	}
}

// logTail returns the last lines of the service's log.
func (s *service) logTail() string {
	data, err := os.ReadFile(s.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return s.name + ":\n  " + strings.Join(lines[max(0, len(lines)-15):], "\n  ")
}
