package passthrough

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
)

// vectored reads or writes a file at an offset, at most size bytes, with the
// guest's memory as the buffer: the kernel copies, and a missing page is
// EFAULT. It returns how many bytes were moved.
func (t *Thread) vectored(call uintptr, fd int, memory vhostuser.Buffers, size int64, offset uint64, how uintptr) (int, unix.Errno) {
	t.iov = t.iov[:0]
	for _, piece := range memory {
		if size <= 0 || len(t.iov) == maxIovecs {
			break
		}
		piece = piece[:min(int64(len(piece)), size)]
		if len(piece) == 0 {
			continue
		}
		size -= int64(len(piece))
		v := unix.Iovec{Base: unsafe.SliceData(piece)}
		v.SetLen(len(piece))
		t.iov = append(t.iov, v)
	}
	if len(t.iov) == 0 {
		return 0, 0
	}
	// The offset is in two words, of which 64-bit systems use the first.
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&t.iov[0])), uintptr(len(t.iov)), uintptr(offset), 0, how)
	runtime.KeepAlive(t)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
