package ownthread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Go runs f in a goroutine that is locked to a dedicated thread. The thread ends with f,
// and with it everything that f changed about it.
func Go(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return // without an unlock: the runtime ends the thread
		}
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked // this thread is occupied, so another one runs f
		runtime.UnlockOSThread()
	}()
}

// Run is Go that waits for f and returns its error. The thread may end a moment later.
func Run(f func() error) error {
	done := make(chan error, 1)
	Go(func() { done <- f() })
	return <-done
}
