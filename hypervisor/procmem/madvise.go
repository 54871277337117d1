package procmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// madvise has one of the process's threads call madvise(2). No other process can:
// process_madvise(2) has no advice that discards. It is done as a debugger calls a
// function: the thread is stopped in the system call in which it waits, makes
// another one by the same instruction, and then the first one again, as after a
// signal.
func madvise(pid int, start, size uint64, advice int) error {
	return ownthread.Run(func() error { return madviseOnThread(pid, start, size, advice) }) // ptrace is by thread
}

const (
	// traceTime bounds how long a process's threads are traced until one of them is
	// about to make the call. Until then they can be let go at any time.
	traceTime = 500 * time.Millisecond
	// callTime bounds the call. A thread that is in it cannot be let go, and the process
	// is killed if it does not come back (seize), so this is longer than any call takes:
	// the process may get almost no CPU time from its cgroup. Its id is held meanwhile,
	// which delays nobody: a process that ends is not reaped before its tracer has
	// waited for the thread, which ends the wait.
	callTime = time.Minute
)

func madviseOnThread(pid int, start, size uint64, advice int) error {
	threads, err := waiting(pid)
	if err != nil {
		return err
	}
	until := time.Now().Add(traceTime)
	err = errors.New("it has only one")
	for _, tid := range threads {
		var ret int64
		ret, err = callIn(pid, tid, until, unix.SYS_MADVISE, start, size, uint64(advice))
		if err == nil && ret != 0 {
			return os.NewSyscallError("madvise", unix.Errno(-ret))
		}
		if err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("no thread except the first can make the call: %w", err)
	}
	return nil
}

// waiting returns the process's threads but the first, whose stops the parent
// would get that waits for the process's end (child.Process).
func waiting(pid int) ([]int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, task := range tasks {
		if tid, err := strconv.Atoi(filepath.Base(task)); err == nil && tid != pid {
			all = append(all, tid)
		}
	}
	return all, nil
}

// callIn has a thread make a system call of three arguments and returns the
// result, as the kernel has it in a register: an error is negative.
func callIn(pid, tid int, until time.Time, number, a, b, c uint64) (ret int64, err error) {
	t, err := seize(pid, tid, until)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.release()) }()
	return t.call(number, a, b, c)
}
