package stdio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// openFIFO opens a FIFO without waiting for the other side. Reads and writes wait
// in Go's poller and end when the file is closed.
func openFIFO(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open FIFO %s: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open FIFO: %w", err)
	}
	return f, nil
}

// reopenFIFO opens the FIFO of f once more. Its name may be gone by now.
func reopenFIFO(f *os.File, flag int) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var (
		again   *os.File
		openErr error
	)
	err = raw.Control(func(fd uintptr) { again, openErr = openFIFO(fmt.Sprintf("/proc/self/fd/%d", fd), flag) })
	if err != nil {
		return nil, err
	}
	return again, openErr
}

// writersGone reports whether the FIFO has had a writer and has none any more.
func writersGone(f *os.File) (gone bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always reported
		n, pollErr := unix.Poll(fds, 0)
		gone = pollErr == nil && n > 0 && fds[0].Revents&unix.POLLHUP != 0
	})
	return gone, err
}

// readFIFO reads like f.Read, but waits if no writer has opened the FIFO yet,
// where read(2) returns end of file. poll(2) distinguishes the two: it reports
// POLLHUP only once there has been a writer (fs/pipe.c, pipe_poll).
func readFIFO(f *os.File, buf []byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var (
		n       int
		readErr error
	)
	err = raw.Read(func(fd uintptr) bool {
		n, readErr = readReady(int(fd), buf)
		return !errors.Is(readErr, syscall.EAGAIN)
	})
	if err != nil {
		return 0, err
	}
	return n, readErr
}

// readReady reads what is available: EAGAIN means nothing yet, (0, nil) the end.
func readReady(fd int, buf []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); err != nil && !errors.Is(err, unix.EINTR) {
		return 0, err
	} else if n <= 0 {
		return 0, syscall.EAGAIN
	}
	n, err := unix.Read(fd, buf)
	if errors.Is(err, unix.EINTR) {
		return 0, syscall.EAGAIN
	}
	return max(n, 0), err
}

// readNow reads what is in the FIFO, without waiting for more; 0 is its end, or
// nothing.
func readNow(f *os.File, buf []byte) (n int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		var readErr error
		if n, readErr = readReady(int(fd), buf); readErr != nil {
			n = 0
		}
	})
	if err != nil {
		return 0
	}
	return n
}
