package reverse

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setgroups sets the calling thread's supplementary groups; there is at least
// one.
func setgroups(groups []uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
