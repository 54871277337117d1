package guest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfoPid reads si_pid of a SIGCHLD siginfo, which package unix leaves in
// an unnamed union: it is the union's first int, and on 64-bit machines the
// union is aligned to 8 bytes (include/uapi/asm-generic/siginfo.h).
func siginfoPid(info *unix.Siginfo) int {
	const offset = 16
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}
