package monitor

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// signalHolds is how long the shim may take to report an exit after a signal: it holds
// back the exit of a process whose output is not read, and then drains like this process.
const signalHolds = EndLimit

// impatience says that the process's output has waited for its reader long enough: the
// process was ended by a signal, or gets one now. With runc its pid is gone then,
// whether its output was read or not.
type impatience struct {
	c chan struct{} // closed when it is set

	mu    sync.Mutex // guards what follows
	isSet bool
	// signaled is when a signal that ends processes was last passed on.
	signaled time.Time
	// over is set when the exit code has come.
	over bool
}

func newImpatience() *impatience { return &impatience{c: make(chan struct{})} }

// await waits until it is set; it reports false if ctx ends first.
func (i *impatience) await(ctx context.Context) bool {
	select {
	case <-i.c:
		return true
	case <-ctx.Done():
		return false
	}
}

func (i *impatience) set() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setLocked()
}

func (i *impatience) setLocked() {
	if !i.isSet {
		i.isSet = true
		close(i.c)
	}
}

// passed notes that a signal that ends processes was passed on. Its process may have
// exited by itself before, although the shim has not reported it.
func (i *impatience) passed() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signaled = time.Now()
	if i.over {
		i.setLocked()
	}
}

// ended notes the exit code.
func (i *impatience) ended(code uint32) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
	if bySignal(code) || time.Since(i.signaled) < signalHolds {
		i.setLocked()
	}
}

// bySignal reports whether a process with that exit code was ended by a signal, as far
// as the code says it.
func bySignal(code uint32) bool { return code > 128 && code <= 128+64 }

// endsProcess reports whether a signal ends a process by default (signal(7)).
func endsProcess(sig unix.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH:
		return false
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU: // they stop it
		return false
	}
	return true
}
