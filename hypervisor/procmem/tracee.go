package procmem

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stopPoll is how often a thread's state is polled: waitpid(2) has no timeout. The
	// time between two polls doubles up to slowPoll.
	stopPoll = 50 * time.Microsecond
	slowPoll = time.Millisecond
	// maxSignals bounds how many signals a thread may get meanwhile. A hostile
	// process can send them without an end.
	maxSignals = 64
)

// tracee is a thread of process pid that the calling thread traces (ptrace(2)).
// Between calls it is stopped.
type tracee struct {
	pid, tid int
	until    time.Time        // when a wait for its next stop ends
	signals  []syscall.Signal // that came meanwhile
}

// seize stops a thread of a process, whose id is held, and waits for that until a
// time. The calling thread must release it.
func seize(pid, tid int, until time.Time) (*tracee, error) {
	if err := unix.PtraceSeize(tid); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t := &tracee{pid: pid, tid: tid, until: until}
	err := os.NewSyscallError("ptrace interrupt", unix.PtraceInterrupt(tid))
	if err == nil {
		err = t.await(isInterrupt, unix.PtraceCont)
	}
	if err == nil {
		err = t.checkProcess()
	}
	if err == nil {
		// Should this thread end before it has put the registers back, the process
		// ends with it.
		err = os.NewSyscallError("ptrace setoptions", unix.PtraceSetOptions(tid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESYSGOOD))
	}
	if err != nil {
		return nil, errors.Join(err, t.release())
	}
	return t, nil
}

// checkProcess returns an error if the thread belongs to another process: the listed
// thread may have ended, and its id been reused. A stopped thread keeps its id.
func (t *tracee) checkProcess() error {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", t.pid, t.tid)); err != nil {
		return fmt.Errorf("it is not the process's: %w", err)
	}
	return nil
}

// release lets the thread run, and sends it the signals that came meanwhile. One
// that does not stop is let go when the calling thread ends.
func (t *tracee) release() error {
	err := os.NewSyscallError("ptrace detach", unix.PtraceDetach(t.tid))
	for _, s := range t.signals {
		_ = unix.Tgkill(t.pid, t.tid, s) // it may have ended
	}
	return err
}

// await waits until the thread stops for a reason that is wanted. From other
// stops it is resumed. After an error but that of stop the thread is stopped.
func (t *tracee) await(wanted func(unix.WaitStatus) bool, resume func(tid, signal int) error) error {
	for {
		status, err := t.stop()
		switch {
		case err != nil:
			return err
		case wanted(status):
			return nil
		case isGroupStop(status):
			return errors.New("the process is stopped (SIGSTOP)")
		case len(t.signals) == maxSignals:
			return fmt.Errorf("it got %d signals", maxSignals)
		}
		if !isInterrupt(status) {
			t.signals = append(t.signals, status.StopSignal())
		}
		if err := resume(t.tid, 0); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	}
}

// stop waits for the thread's next stop.
func (t *tracee) stop() (unix.WaitStatus, error) {
	for pause := stopPoll; ; pause = min(2*pause, slowPoll) {
		var status unix.WaitStatus
		got, err := unix.Wait4(t.tid, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, os.NewSyscallError("wait4", err)
		case got == t.tid && status.Stopped():
			return status, nil
		case got == t.tid:
			return 0, errors.New("it has ended")
		case time.Now().After(t.until):
			return 0, fmt.Errorf("it did not stop: %w", os.ErrDeadlineExceeded)
		}
		time.Sleep(pause)
	}
}

// isInterrupt reports whether a thread has stopped for PTRACE_INTERRUPT.
func isInterrupt(s unix.WaitStatus) bool { return s.TrapCause() == unix.PTRACE_EVENT_STOP }

// isGroupStop reports whether a thread has stopped with its process.
func isGroupStop(s unix.WaitStatus) bool {
	return s>>16 == unix.PTRACE_EVENT_STOP && s.StopSignal() != unix.SIGTRAP
}

// isSyscall reports whether a thread has stopped at a system call's begin or end
// (PTRACE_O_TRACESYSGOOD).
func isSyscall(s unix.WaitStatus) bool { return s.StopSignal() == unix.SIGTRAP|0x80 }
