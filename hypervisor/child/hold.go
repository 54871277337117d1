package child

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// holdWait bounds how long reaping a child waits for holders of its process id.
// A holder that takes longer is in a system call that has long since found the
// process.
const holdWait = time.Second

// holds keeps a child from being reaped while its process id is in use.
type holds struct {
	mu    sync.RWMutex // a holder has it for reading
	ended atomic.Bool
}

// Hold returns the child's process id. Until Release it is not given to another
// process, even if the child ends. ok is false, and Release must not be called,
// if the child has ended. The id should be held for no longer than a system call, or
// while a thread of the child is traced, whose end the tracer notices.
func (p *Process) Hold() (pid int, ok bool) {
	p.holds.mu.RLock()
	if p.holds.ended.Load() {
		p.holds.mu.RUnlock()
		return 0, false
	}
	return p.Pid(), true
}

// Release ends a Hold.
func (p *Process) Release() { p.holds.mu.RUnlock() }

// awaitEnd waits until the child has ended, without reaping it, and then for those
// who hold its id. From its end on it can no longer be held.
func (p *Process) awaitEnd() {
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, p.Pid(), nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	p.holds.ended.Store(true)
	for end := time.Now().Add(holdWait); !p.holds.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	p.holds.mu.Unlock()
}
