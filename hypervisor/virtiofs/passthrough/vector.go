package passthrough

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// vectored makes a system call that reads or writes a file at an offset, for
// vhostuser.Buffers.Fill and Drain.
func vectored(call uintptr, fd int, offset uint64, how uintptr) vhostuser.IO {
	return func(iov []unix.Iovec, done int64) (int, unix.Errno) {
		// The offset is in two words, of which 64-bit systems use the first.
		n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)), uintptr(offset)+uintptr(done), 0, how)
		runtime.KeepAlive(iov)
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}
