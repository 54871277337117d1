package vhostuser

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// guarded calls f, which touches guest memory. A missing page, which is a
// SIGBUS (mmap(2)) or an error of foreign's system calls, ends f, not this
// process, and counts as a broken ring.
// Other panics are passed on.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case lost:
			err = fmt.Errorf("guest memory cannot be reached: %w: %w", p.err, ErrBroken)
		case interface {
			runtime.Error
			Addr() uintptr // implemented by a fault's error (runtime/debug, SetPanicOnFault)
		}:
			err = fmt.Errorf("guest memory at %#x is gone: %w", p.Addr(), ErrBroken)
		default:
			panic(p) //nolint:forbidigo // not a fault of guest memory: pass it on
		}
	}()
	return f()
}
