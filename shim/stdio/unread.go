package stdio

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The time between two looks for a reader: it doubles from the first to the last. An
// engine may be away for hours.
const (
	unreadPause    = 100 * time.Millisecond
	unreadPauseMax = time.Second
)

// releaseReads closes what the shim itself could read of the output FIFOs, and
// keeps them open for writing. A FIFO keeps its content until all ends are closed
// (pipe(7)). It must be called with mu held, when nothing is written any more.
func (i *IO) releaseReads() {
	for k, c := range i.outputs {
		f, ok := c.(*os.File)
		if !ok || i.paths.ReadersStay || !isPipe(f) {
			continue
		}
		if w, err := reopenFIFO(f, os.O_WRONLY); err == nil {
			_ = f.Close()
			i.outputs[k] = w
		}
	}
}

// awaitReader waits as long as a FIFO has output and no reader: the engine is down,
// and opens the FIFO when it is back. Close ends the wait. It must be called with mu
// held, after releaseReads.
func (i *IO) awaitReader() {
	for pause := unreadPause; i.isUnread(); pause = min(2*pause, unreadPauseMax) {
		i.mu.Unlock()
		time.Sleep(pause)
		i.mu.Lock()
	}
}

// isUnread must be called with mu held.
func (i *IO) isUnread() bool {
	if i.paths.ReadersStay {
		return false // its readers do not come back
	}
	for _, c := range i.outputs {
		if f, ok := c.(*os.File); ok && lacksReader(f) {
			return true
		}
	}
	return false
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// lacksReader reports whether f is a FIFO's end for writing with unread output and
// without a reader: poll(2) then reports POLLERR.
func lacksReader(f *os.File) (lacks bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} // POLLERR is always reported
		n, pollErr := unix.Poll(fds, 0)
		if pollErr != nil || n <= 0 || fds[0].Revents&unix.POLLERR == 0 {
			return
		}
		unread, sizeErr := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD
		lacks = sizeErr == nil && unread > 0
	})
	return err == nil && lacks
}
