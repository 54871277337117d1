package monitor

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Exit is how a process of Run has ended.
type Exit struct {
	// Code is the process's exit code.
	Code int
	// Lost names each output of which a part could not be written, for another reason
	// than a reader that is gone. It is nil if there is none.
	Lost error
}

// loss is the part of an output that its destination has not taken.
type loss struct {
	mu    sync.Mutex // guards what follows
	bytes int
	why   error // the first error
}

func (l *loss) add(bytes int, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += bytes
	if l.why == nil {
		l.why = why
	}
}

func (l *loss) get() (bytes int, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.why
}

// dropped drops what dst has not taken, so that the process does not block: a file whose
// disk is full or fails may take what follows. It reports false, and drops nothing, if
// the stream ends: the process gets SIGPIPE for a reader that is gone.
func (r *relay) dropped(bytes int, why error) bool {
	if !r.output || hasNoReader(r.dst, why) {
		return false
	}
	r.loss.add(bytes, why)
	r.moved.Add(int64(bytes))
	return true
}

// hasNoReader reports whether a write failed because a pipe's reader is gone, or because
// the terminal was hung up. A file's EIO is a bad disk.
func hasNoReader(fd int, why error) bool {
	if errors.Is(why, unix.EPIPE) {
		return true
	}
	if !errors.Is(why, unix.EIO) {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP != 0
}

// streamNames are the streams' names in messages.
var streamNames = [3]string{"standard input", "standard output", "standard error"}

// lost returns what Exit.Lost says.
func (s *session) lost() error {
	var errs []error
	for _, r := range s.relays {
		bytes, why := r.loss.get()
		switch {
		case why == nil:
		case bytes == 1:
			errs = append(errs, fmt.Errorf("%s: %w: 1 byte was lost", streamNames[r.stream], why))
		default:
			errs = append(errs, fmt.Errorf("%s: %w: %d bytes were lost", streamNames[r.stream], why, bytes))
		}
	}
	return errors.Join(errs...)
}
