// Package command runs programs of the guest image beside the containers: hooks, the
// commands of a debug console, and iptables.
package command

import (
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Children gets the children that the agent reaps itself, so that PID 1's reaper
// ignores them.
type Children interface {
	// Begin is called before a child is started, end after, with its PID or 0.
	Begin() (end func(pid int))
	// Done is called when the child has been reaped.
	Done(pid int)
}

// Start starts the program as cmd.Start does; Wait must follow unless it fails. The
// program has the kernel's usual timer slack and not the agent's (package slack).
func Start(cmd *exec.Cmd, children Children) error {
	end := children.Begin()
	if err := withSlack(usualSlack, cmd.Start); err != nil {
		end(0)
		return err
	}
	end(cmd.Process.Pid)
	return nil
}

// Wait waits for a program as cmd.Wait does.
func Wait(cmd *exec.Cmd, children Children) error {
	err := cmd.Wait()
	children.Done(cmd.Process.Pid)
	return err
}

// usualSlack is what the kernel gives its first process, in nanoseconds.
const usualSlack = 50_000

// withSlack calls start on a thread that has the timer slack ns meanwhile: a child
// has that of the thread that forks it, and goes back to it when it asks for the
// default (prctl(2), PR_SET_TIMERSLACK).
func withSlack(ns int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl(PR_GET_TIMERSLACK)", err)
	}
	setSlack(ns)
	defer setSlack(before)
	return start()
}

// setSlack cannot fail (kernel/sys.c).
func setSlack(ns int) { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(ns), 0, 0, 0) }
