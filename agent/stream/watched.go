package stream

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watched is the agent's end of a pipe or a terminal, read or written. Go's poller
// would be woken by each write of the process, even while the agent does not wait for
// one (poll_usage in Linux's fs/pipe.c; drivers/tty/n_tty.c): two switches of thread
// each, on a guest's one CPU. So it does not know the file, but an epoll set with the
// file in it that reports one event for each wait (EPOLLONESHOT).
//
// One goroutine at a time may use do or Write.
type watched struct {
	file *os.File // does not block
	set  *os.File
	// events are what is waited for: EPOLLIN or EPOLLOUT.
	events uint32
	// armed is set while the set reports an event. Only do uses it.
	armed bool
}

// watch takes the file over if it succeeds. Go's poller must not know it (unpolled).
func watch(file *os.File, events uint32) (*watched, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll set: %w", err)
	}
	w := &watched{file: file, set: pollable(set), events: events}
	if err := w.withFile(func(fd int) error { return control(set, unix.EPOLL_CTL_ADD, fd, 0) }); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", file.Name(), err), w.set.Close())
	}
	return w, nil
}

// do calls try with the file's descriptor until it returns true: at once, and whenever
// there may be something to read, or room to write. After wake it returns
// os.ErrDeadlineExceeded, until letWait is called.
func (w *watched) do(try func(fd int) bool) error {
	raw, err := w.set.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(set uintptr) (done bool) {
		w.disarm(int(set))
		failed = w.withFile(func(fd int) error {
			if done = try(fd); done {
				return nil
			}
			w.armed = true
			return control(int(set), unix.EPOLL_CTL_MOD, fd, w.events|unix.EPOLLONESHOT)
		})
		return done || failed != nil
	})
	return errors.Join(err, failed)
}

// disarm takes the event that there may be.
func (w *watched) disarm(set int) {
	if w.armed {
		w.armed = false
		var event [1]unix.EpollEvent
		_, _ = unix.EpollWait(set, event[:], 0) // One that stays only wakes the poller.
	}
}

// wake ends a wait of do, and those that begin before letWait.
func (w *watched) wake() { _ = w.set.SetReadDeadline(time.Now()) }

func (w *watched) letWait() { _ = w.set.SetReadDeadline(time.Time{}) }

// Write writes all of data. An error after wake is os.ErrDeadlineExceeded.
func (w *watched) Write(data []byte) (n int, err error) {
	for n < len(data) {
		var failed error
		err := w.do(func(fd int) bool {
			var k int
			k, failed = writeOnce(fd, data[n:])
			n += k
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err := errors.Join(err, failed); err != nil {
			return n, err
		}
	}
	return n, nil
}

// writeOnce writes as much as there is room for.
func writeOnce(fd int, data []byte) (int, error) {
	for {
		n, err := unix.Write(fd, data)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// Close ends a wait of do with an error.
func (w *watched) Close() error { return errors.Join(w.file.Close(), w.set.Close()) }

// SyscallConn is that of the file.
func (w *watched) SyscallConn() (syscall.RawConn, error) { return w.file.SyscallConn() }

// withFile calls do with the descriptor, which stays open meanwhile.
func (w *watched) withFile(do func(fd int) error) error {
	raw, err := w.SyscallConn()
	if err != nil {
		return err
	}
	outer := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(outer, err)
}

func control(set, op, fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(set, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}))
}

// unpolled makes a file that does not block and that Go's poller does not know, which
// knows each that does not block when it is made.
func unpolled(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, false)
	file := os.NewFile(uintptr(fd), name)
	_ = unix.SetNonblock(fd, true)
	return file
}

// outOfPoller returns the file as one that Go's poller does not know, and closes it.
func outOfPoller(file *os.File) (*os.File, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	outer := raw.Control(func(known uintptr) { fd, err = unix.FcntlInt(known, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(outer, err, file.Close()); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", file.Name(), err)
	}
	return unpolled(fd, file.Name()), nil
}
