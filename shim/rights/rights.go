package rights

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Drop takes all capabilities from every thread of this process, for good. Its
// user stays root. Nothing is dropped in a program with cgo, which cannot change
// the rights of its threads (syscall.AllThreadsSyscall); ours have none.
func Drop() error {
	err := dropAll()
	if errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

func dropAll() error {
	for c := range uintptr(64) {
		err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more (capabilities(7))
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	err := onAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])))
	if err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

// onAllThreads makes a system call on each thread.
//
//go:uintptrescapes
func onAllThreads(number, first, second uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(number, first, second, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
