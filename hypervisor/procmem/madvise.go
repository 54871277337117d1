package procmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
)

// madvise has one of the process's threads call madvise(2). No other process can:
// process_madvise(2) has no advice that discards. It is done as a debugger calls a
// function: the thread is stopped in the system call in which it waits, makes
// another one by the same instruction, and then the first one again, as after a
// signal.
func madvise(pid int, start, size uint64, advice int) error {
	result := make(chan error, 1)
	child.OnOwnThread(func() { result <- madviseOnThread(pid, start, size, advice) }) // ptrace is by thread
	return <-result
}

// traceTime bounds how long a process's threads are traced. Its id is held for so
// long, which must be less than what its parent waits for holders (child.Process.Hold).
const traceTime = 500 * time.Millisecond

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
