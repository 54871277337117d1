package container

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/command"
)

// Exit is how and when a process ended.
type Exit struct {
	// Status is what the process passed to exit(2), or 128 + signal.
	Status uint32
	// Signaled is set if a signal has ended it: it may pass any status to exit(2).
	Signaled bool
	At       time.Time
}

// unknownStatus is the status of a process that could not be waited for.
const unknownStatus = 255

// child is a process that was started: libcontainer's or the os package's.
type child interface {
	Wait() (*os.ProcessState, error)
	Signal(sig os.Signal) error
}

// Process is a started process.
type Process struct {
	child    child
	children command.Children
	pid      int
	console  *os.File
}

// Pid is the process's PID in the guest.
func (p *Process) Pid() int { return p.pid }

// Console is the master end of the process's terminal, or nil. It belongs to
// the caller.
func (p *Process) Console() *os.File { return p.console }

// Wait blocks until the process has ended. It must be called exactly once.
func (p *Process) Wait() Exit {
	state, _ := p.child.Wait() // Its error repeats the status.
	exit := Exit{Status: unknownStatus, At: time.Now()}
	p.children.Done(p.pid)
	if state == nil {
		return exit
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok {
		exit.Status = uint32(status.ExitStatus())
		if status.Signaled() {
			exit.Status, exit.Signaled = 128+uint32(status.Signal()), true
		}
	}
	return exit
}

// Signal sends sig to the process alone. It fails with errdefs.ErrNotFound
// when the process has been reaped, so that a reused PID is never signalled.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.child.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// newProcess translates an OCI process.
func newProcess(p *specs.Process) (*libcontainer.Process, error) {
	rlimits, err := newRlimits(p.Rlimits)
	if err != nil {
		return nil, err
	}
	lp := &libcontainer.Process{
		Args:            p.Args,
		Env:             p.Env,
		UID:             int(p.User.UID),
		GID:             int(p.User.GID),
		Cwd:             p.Cwd,
		NoNewPrivileges: &p.NoNewPrivileges,
		Rlimits:         rlimits,
		Scheduler:       p.Scheduler,
		IOPriority:      p.IOPriority,
	}
	for _, gid := range p.User.AdditionalGids {
		lp.AdditionalGroups = append(lp.AdditionalGroups, int(gid))
	}
	if p.ConsoleSize != nil {
		lp.ConsoleWidth, lp.ConsoleHeight = clamp(p.ConsoleSize.Width), clamp(p.ConsoleSize.Height)
	}
	if c := p.Capabilities; c != nil {
		lp.Capabilities = &configs.Capabilities{
			Bounding: c.Bounding, Effective: c.Effective, Inheritable: c.Inheritable,
			Permitted: c.Permitted, Ambient: c.Ambient,
		}
	}
	return lp, nil
}

func clamp(n uint) uint16 { return uint16(min(n, 1<<16-1)) }
