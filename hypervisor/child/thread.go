package child

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f in a goroutine that is locked to a dedicated thread. The
// thread ends with f, and with it everything that f changed about it. It is
// never the process's main thread, which cannot end (the Go runtime parks it)
// and whose namespaces are what /proc/PID/ns shows.
func OnOwnThread(f func()) {
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

// enterNetwork moves the calling thread, which must not be used for anything
// else, into the network namespace at path.
func enterNetwork(path string) error {
	// O_NONBLOCK because opening a FIFO would block.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	err = unix.Setns(fd, unix.CLONE_NEWNET)
	if errors.Is(err, unix.EINVAL) { // setns(2)
		return fmt.Errorf("%s is not a network namespace: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}
