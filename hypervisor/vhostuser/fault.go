package vhostuser

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// guarded calls f, which touches guest memory. A page that is not there, which
// is a SIGBUS (mmap(2)), ends f and not this process: it is then a broken ring.
// Another panic goes on.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr // what a fault's error has (runtime/debug, SetPanicOnFault)
		}:
			err = fmt.Errorf("guest memory at %#x is gone: %w", p.Addr(), ErrBroken)
		default:
			panic(p) //nolint:forbidigo // not a fault of guest memory: pass it on
		}
	}()
	return f()
}
