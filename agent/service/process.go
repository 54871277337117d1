package service

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/container"
	"github.com/katabox/katabox/agent/stream"
)

// process is a container's init or an exec.
type process struct {
	container *currentID // the container's
	execID    string
	stdio     *stream.Stdio
	spec      *specs.Process // an exec's, until it is started
	exited    chan struct{}  // closed once exit is set and reported

	mu    sync.Mutex
	state state
	proc  Process // nil until it is started
	exit  container.Exit
	// doomed is set if an exec was killed or deleted while it was being started: it
	// must not run.
	doomed bool
}

func newProcess(container *currentID, execID string, stdio *stream.Stdio) *process {
	return &process{container: container, execID: execID, stdio: stdio, exited: make(chan struct{})}
}

func (p *process) name() string {
	if p.execID == "" {
		return "container " + p.container.String()
	}
	return "process " + p.execID + " of container " + p.container.String()
}

// begun sets the started process, whose exit must not be recorded before. It fails,
// without effect, if the process is doomed: the caller ends it.
func (p *process) begun(proc Process, to state) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doomed {
		return fmt.Errorf("%s was killed while it was being started: %w", p.name(), errdefs.ErrUnavailable)
	}
	p.proc = proc
	p.state = to
	return nil
}

// doom has an exec that is being started end with its start. It reports whether the
// process is one.
func (p *process) doom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != starting || p.proc != nil {
		return false
	}
	p.doomed = true
	return true
}

func (p *process) pid() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return uint32(p.proc.Pid())
}

// lives reports whether the process was started and its end is not known. It may
// already have been reaped, and its PID may be another process's.
func (p *process) lives() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc != nil && p.state != stopped && p.state != deleting
}

// ended records the exit. It is called before the exit is reported, because the
// host may respond with Delete; wake is called after.
func (p *process) ended(exit container.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exit = exit
	p.state = stopped
}

// wake wakes those that wait for the exit.
func (p *process) wake() { close(p.exited) }

// wait blocks until the process has ended.
func (p *process) wait(ctx context.Context) (container.Exit, error) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return container.Exit{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, nil
}

// signal sends sig to this process alone. SIGKILL also ends an exec that is being
// started, as soon as it is.
func (p *process) signal(sig syscall.Signal) error {
	if sig == unix.SIGKILL && p.doom() {
		return nil
	}
	p.mu.Lock()
	proc, st := p.proc, p.state
	p.mu.Unlock()
	if st == stopped || st == deleting {
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	if proc == nil {
		return fmt.Errorf("%s is not started: %w", p.name(), errdefs.ErrFailedPrecondition)
	}
	return proc.Signal(sig)
}

// bound fails unless the host has bound every stream that it requested: earlier
// output would be lost.
func (p *process) bound() error {
	if missing := p.stdio.Unbound(); len(missing) > 0 {
		return fmt.Errorf("%s: no connection for %v: %w", p.name(), missing, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// childStdio returns the stdio that the runtime gives to the process.
func childStdio(s *stream.Stdio) container.Stdio {
	files := s.Child()
	return container.Stdio{
		Stdin: files.Stdin, Stdout: files.Stdout, Stderr: files.Stderr,
		Terminal: s.Terminal(),
	}
}

// adopt gives the started process's terminal to its stdio and closes our copies
// of the process's ends, so that its streams end with it.
func adopt(s *stream.Stdio, proc Process) error {
	s.Child().Close()
	if !s.Terminal() {
		return nil
	}
	return s.SetConsole(proc.Console())
}

// failed ends a process that could not be started. No exit is reported.
func (p *process) failed() {
	p.ended(container.Exit{Status: failedStatus, At: time.Now()})
	p.wake()
}

// failedStatus is the status of a process that could not be started.
const failedStatus = 255

// deleted returns the answer to Delete.
func (p *process) deleted() *taskapi.DeleteResponse {
	pid := p.pid()
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &taskapi.DeleteResponse{Pid: pid, ExitStatus: p.exit.Status}
	if !p.exit.At.IsZero() {
		resp.ExitedAt = timestamppb.New(p.exit.At)
	}
	return resp
}
