package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies one process, even after its death: a pid is reused, a pid
// together with its start time is not. The zero Process is none.
type Process struct {
	PID int `json:"pid"`
	// Start is the process's start time in clock ticks since boot, field 22
	// of /proc/<pid>/stat (proc(5)).
	Start uint64 `json:"start"`
}

// Identify returns the identity of the running process pid.
func Identify(pid int) (Process, error) {
	start, _, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// readStat reads a process's start time, and whether it is a zombie.
func readStat(pid int) (start uint64, ended bool, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false, err
	}
	// The second field is the command in parentheses and may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	const startField = 22 - 3 // fields begins with the third
	if len(fields) <= startField {
		return 0, false, errors.New("short stat")
	}
	start, err = strconv.ParseUint(string(fields[startField]), 10, 64)
	return start, fields[0][0] == 'Z' || fields[0][0] == 'X', err
}

// Alive reports whether this process, not another with its pid, is running. One
// that has been killed is not, even if some of its threads have not ended yet. One
// that cannot be looked at, for lack of a descriptor or of memory, counts as running:
// what it has must not be removed under it.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, ended, err := readStat(p.PID)
	if err != nil {
		return !isGone(err)
	}
	return start == p.Start && !ended
}

// isGone reports whether an error means that no process has a pid: a thread may have
// its number (pidfd_open(2): EINVAL, and ENOENT in newer kernels). All others are the
// caller's lack of something.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL)
}

// open returns a descriptor of this process, -1 if it is gone. A process whose
// first thread has ended is a zombie in /proc, although it is there, with all
// that it has, until its last thread ends: it is not gone.
func (p Process) open() (int, error) {
	if p.PID <= 0 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, p.unlessGone(os.NewSyscallError("pidfd_open", err))
	}
	start, _, err := readStat(p.PID)
	if err == nil && start == p.Start {
		return fd, nil
	}
	_ = unix.Close(fd) // the pid is another's now, or its owner is not known
	return -1, p.unlessGone(err)
}

func (p Process) unlessGone(err error) error {
	if err == nil || isGone(err) {
		return nil
	}
	return fmt.Errorf("find process %d: %w", p.PID, err)
}

// lackPause is the time between two attempts to open a process.
const lackPause = 10 * time.Millisecond

// openBy is open, and tries again until the deadline: what is lacking may come back.
func (p Process) openBy(deadline time.Time) (int, error) {
	for {
		fd, err := p.open()
		if err == nil || !time.Now().Before(deadline) {
			return fd, err
		}
		time.Sleep(lackPause)
	}
}

// Signal sends this process a signal. It is no error if the process is gone.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	return p.signal(fd, sig)
}

func (p Process) signal(fd int, sig unix.Signal) error {
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send process %d signal %v: %w", p.PID, sig, err)
	}
	return nil
}

// Kill kills this process and waits, at most timeout, until it is gone. It is
// no error if it is gone already.
func (p Process) Kill(timeout time.Duration) error { return KillAll(timeout, p) }

// KillAll kills processes and waits, at most timeout for all of them, until they
// are gone.
func KillAll(timeout time.Duration, processes ...Process) error {
	deadline := time.Now().Add(timeout)
	var errs []error
	dying := make([]int, len(processes))
	for i, p := range processes {
		var err error
		if dying[i], err = p.openBy(deadline); dying[i] >= 0 {
			err = p.signal(dying[i], unix.SIGKILL)
		}
		errs = append(errs, err)
	}
	for i, p := range processes {
		if dying[i] >= 0 {
			errs = append(errs, waitGone(dying[i], p.PID, deadline), unix.Close(dying[i]))
		}
	}
	return errors.Join(errs...)
}

// Await waits, at most timeout, until this process is gone.
func (p Process) Await(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	fd, err := p.openBy(deadline)
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	return waitGone(fd, p.PID, deadline)
}

// waitGone waits until the pidfd is readable: the process has ended, with all its
// threads (pidfd_open(2), kernel/fork.c pidfd_poll).
func waitGone(fd, pid int, deadline time.Time) error {
	for began := time.Now(); ; {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if left == 0 {
			return fmt.Errorf("process %d still exists after %v", pid, time.Since(began).Round(time.Millisecond))
		}
	}
}
