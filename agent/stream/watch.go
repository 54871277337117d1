package stream

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch waits for a pipe's bytes. Go's poller would be woken by each write of the
// process, even while the agent does not wait for one (poll_usage in Linux's
// fs/pipe.c): two switches of thread each, on a guest's one CPU. So it does not know
// the pipe, but an epoll set with the pipe in it that reports one event for each wait
// (EPOLLONESHOT).
type watch struct {
	pipe, set *os.File
	// armed is set while the set reports an event. Only read uses it.
	armed bool
}

// newWatch watches a pipe that Go's poller does not know, and that does not block.
func newWatch(pipe *os.File) (*watch, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll set: %w", err)
	}
	w := &watch{pipe: pipe, set: pollable(set)}
	if err := w.withPipe(func(fd int) error { return control(set, unix.EPOLL_CTL_ADD, fd, 0) }); err != nil {
		return nil, errors.Join(fmt.Errorf("watch pipe: %w", err), w.set.Close())
	}
	return w, nil
}

// read calls try with the pipe's descriptor until it returns true: at once, and
// whenever there may be something to read. After wake it returns
// os.ErrDeadlineExceeded, until wait is called. One goroutine at a time may read.
func (w *watch) read(try func(fd uintptr) bool) error {
	raw, err := w.set.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(set uintptr) (done bool) {
		w.disarm(int(set))
		failed = w.withPipe(func(fd int) error {
			if done = try(uintptr(fd)); done {
				return nil
			}
			w.armed = true
			return control(int(set), unix.EPOLL_CTL_MOD, fd, unix.EPOLLIN|unix.EPOLLONESHOT)
		})
		return done || failed != nil
	})
	return errors.Join(err, failed)
}

// disarm takes the event that there may be.
func (w *watch) disarm(set int) {
	if w.armed {
		w.armed = false
		var event [1]unix.EpollEvent
		_, _ = unix.EpollWait(set, event[:], 0) // One that stays only wakes the poller.
	}
}

// wake ends a read that waits, and those that begin before wait.
func (w *watch) wake() { _ = w.set.SetReadDeadline(time.Now()) }

// wait lets reads wait again.
func (w *watch) wait() { _ = w.set.SetReadDeadline(time.Time{}) }

func (w *watch) close() { _ = w.set.Close() }

func (w *watch) withPipe(do func(fd int) error) error {
	raw, err := w.pipe.SyscallConn()
	if err != nil {
		return err
	}
	outer := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(outer, err)
}

func control(set, op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(set, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}
