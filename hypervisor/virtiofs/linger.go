package virtiofs

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lingerMost is how long a thread keeps its processor of Go's scheduler (its P)
// while it waits for the next request.
//
// A thread that waits in an ordinary system call loses its P to sysmon, which
// looks every 20 us at first, and asks for one when it is back; when it was the
// only one, it wakes sysmon with its next call. That is several switches of
// threads for each request of a guest that makes one after the other, and cost
// more than most requests do. With its P a thread is woken and goes on.
//
// Meanwhile the P runs nothing else, so the front alone does it, and only where
// there are more Ps. The world stops no later for it: the runtime's signal
// to a thread that is to stop ends the wait, and is sent again until it has.
const lingerMost = time.Millisecond

// lingerAfter is how many requests must have come within lingerMost of each
// other: after a single one sysmon would wake for nothing for as long.
const lingerAfter = 3

// rhythm is how fast a thread's requests follow each other.
type rhythm struct{ quick int }

// linger reports whether the next request is to be expected soon.
func (r *rhythm) linger() bool { return r.quick >= lingerAfter }

// waited says how long the last one was waited for.
func (r *rhythm) waited(d time.Duration) {
	if d >= lingerMost {
		r.quick = 0
	} else if r.quick < lingerAfter {
		r.quick++
	}
}

// hasSpareP reports whether others can go on while a thread lingers.
func hasSpareP() bool { return runtime.GOMAXPROCS(0) > 1 }

// epollHeld is epoll_wait(2) for one event, of which Go's scheduler learns
// nothing. It may end early: no event, or EINTR.
func epollHeld(epoll int, event *unix.EpollEvent, most time.Duration) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(event)), 1, uintptr(most.Milliseconds()), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
