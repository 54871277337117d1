package procmem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

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

// maxThreads bounds how many threads are tried.
const maxThreads = 16

func madviseOnThread(pid int, start, size uint64, advice int) error {
	threads, err := waiting(pid)
	if err != nil {
		return err
	}
	errs := []error{errors.New("none of its threads waits in a system call")}
	for _, tid := range threads[:min(len(threads), maxThreads)] {
		ret, err := callIn(pid, tid, unix.SYS_MADVISE, start, size, uint64(advice))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("thread %d: %w", tid, err))
		case ret != 0:
			return os.NewSyscallError("madvise", unix.Errno(-ret))
		default:
			return nil
		}
	}
	return errors.Join(errs...)
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
func callIn(pid, tid int, number, a, b, c uint64) (ret int64, err error) {
	t, err := seize(pid, tid)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.release()) }()
	return t.call(number, a, b, c)
}
