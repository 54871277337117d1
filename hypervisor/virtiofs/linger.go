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
// at first checks every 20 us, and must get another one afterwards; if it was
// the only one, its next call wakes sysmon. For a guest that makes one request
// after the other, that is several thread switches per request, and costs more
// than most requests. A thread that keeps its P is woken and continues.
//
// Meanwhile the P runs nothing else, so only the front does it, and only if
// there are other Ps. It does not delay stopping the world: the runtime's
// preemption signal ends the wait, and is repeated until it has.
const lingerMost = time.Millisecond

// lingerAfter is how many requests must have come within lingerMost of each
// other: after a single one sysmon would keep waking for nothing.
const lingerAfter = 3

// rhythm tracks how fast a thread's requests follow each other.
type rhythm struct{ quick int }

// linger reports whether the next request is expected soon.
func (r *rhythm) linger() bool { return r.quick >= lingerAfter }

// waited records how long the wait for the last request took.
func (r *rhythm) waited(d time.Duration) {
	if d >= lingerMost {
		r.quick = 0
	} else if r.quick < lingerAfter {
		r.quick++
	}
}

// hasSpareP reports whether others can go on while a thread lingers.
func hasSpareP() bool { return runtime.GOMAXPROCS(0) > 1 }

// epollHeld is epoll_wait(2) for one event, without telling Go's scheduler. It
// may end early: no event, or EINTR.
func epollHeld(epoll int, event *unix.EpollEvent, most time.Duration) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(event)), 1, uintptr(most.Milliseconds()), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
