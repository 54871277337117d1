package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// nsThread is a thread of the operating system with its own namespaces. It ends, and
// with it its hold on them, when it is closed.
type nsThread struct {
	calls chan func()
}

// newThread starts a thread with its own root and working directory, and with new
// namespaces of kinds, CLONE_NEW*.
func newThread(kinds int) (*nsThread, error) {
	t := &nsThread{calls: make(chan func())}
	ownthread.Go(func() {
		for call := range t.calls {
			call()
		}
	})
	err := t.do(func() error { return unix.Unshare(unix.CLONE_FS | kinds) })
	if err != nil {
		t.close()
		return nil, fmt.Errorf("make a thread with namespaces: %w", err)
	}
	return t, nil
}

// do calls f on the thread.
func (t *nsThread) do(f func() error) error {
	done := make(chan error, 1)
	t.calls <- func() { done <- f() }
	return <-done
}

func (t *nsThread) close() { close(t.calls) }

// enter moves the calling thread into a namespace of kind CLONE_NEW*, or with an
// empty path into a new one. A new PID namespace is not made here: it begins with
// its first process.
func enter(kind int, path string) error {
	if path == "" {
		if kind == unix.CLONE_NEWPID {
			return nil
		}
		return unix.Unshare(kind)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, kind); err != nil {
		return fmt.Errorf("join namespace %s: %w", path, err)
	}
	return nil
}
