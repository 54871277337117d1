// Package pty operates on pseudo-terminals whose master the agent has opened, on the
// guest's devpts or on a container's. It identifies the terminal by ioctls on the
// master, never by a path, which a container could replace.
package pty

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenSlave unlocks a new terminal and opens its slave end, which the caller
// closes (ioctl_tty(2)).
func OpenSlave(master *os.File) (*os.File, error) {
	slave := -1
	err := control(master, func(fd uintptr) error {
		var unlock int32
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock))); errno != 0 {
			return os.NewSyscallError("TIOCSPTLCK", errno)
		}
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return os.NewSyscallError("TIOCGPTPEER", errno)
		}
		slave = int(peer)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return os.NewFile(uintptr(slave), "terminal"), nil
}

// Resize sets a terminal's size, given either of its ends. A number that is too
// large is replaced by the largest, 65535.
func Resize(terminal *os.File, rows, columns uint) error {
	size := unix.Winsize{Row: uint16(min(rows, math.MaxUint16)), Col: uint16(min(columns, math.MaxUint16))}
	return control(terminal, func(fd uintptr) error {
		return os.NewSyscallError("TIOCSWINSZ", unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size))
	})
}

// control calls do with the file's descriptor, which stays as it is: File.Fd would
// make it blocking.
func control(f *os.File, do func(fd uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(fd) }); err != nil {
		return err
	}
	return failed
}
