package child

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The securebits with which uid 0 gains nothing from execve(2), locked
// (linux/securebits.h).
const (
	secNoRoot         = 1<<0 | 1<<1
	secNoAmbientRaise = 1<<6 | 1<<7
	secureBits        = secNoRoot | secNoAmbientRaise
	// capBits is how many capabilities there can be: capget(2) has 64 bits.
	capBits = 64
)

// drop removes all of root's rights from the calling thread, which executes the
// child; no other thread survives that. The calls are raw because those of
// package syscall change all threads.
func (j *Jail) drop() error {
	const locked = unix.RLIM_INFINITY
	// Before Linux 5.12 memory registered for asynchronous I/O counts as
	// locked. If the limit cannot be raised, it may still be enough.
	_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: locked, Max: locked})
	if err := dropBounding(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return fmt.Errorf("set securebits: %w", err)
	}
	if err := j.become(); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	return nil
}

func dropBounding() error {
	for c := range uintptr(capBits) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no more capabilities
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// become changes user and group of the calling thread.
func (j *Jail) become() error {
	if j.UID == 0 {
		return nil
	}
	for _, call := range []struct {
		what   string
		number uintptr
		a, b   uintptr
	}{
		{"leave groups", unix.SYS_SETGROUPS, 0, 0},
		{"change group", unix.SYS_SETRESGID, uintptr(j.GID), uintptr(j.GID)},
		{"change user", unix.SYS_SETRESUID, uintptr(j.UID), uintptr(j.UID)},
	} {
		if _, _, errno := unix.RawSyscall(call.number, call.a, call.b, call.b); errno != 0 {
			return fmt.Errorf("%s: %w", call.what, errno)
		}
	}
	return nil
}
