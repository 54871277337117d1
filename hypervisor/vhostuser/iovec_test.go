package vhostuser

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// bytesOf returns a buffer's memory.
func bytesOf(v unix.Iovec) []byte { return unsafe.Slice(v.Base, v.Len) }

// scatter copies p into buffers, as preadv(2) does.
func scatter(iov []unix.Iovec, p []byte) int {
	n := 0
	for _, v := range iov {
		n += copy(bytesOf(v), p[n:])
	}
	return n
}
