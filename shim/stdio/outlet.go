package stdio

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// The size of one read, in bytes. It grows as long as reads fill it: many
// processes write little, and each has a buffer.
const (
	firstBuffer = 16 << 10
	maxBuffer   = 256 << 10
)

// outlet writes an output to the engine's end, for all of its connections.
type outlet struct {
	fifo   *os.File
	breaks bool
	// passed is called with the number of bytes that the engine's end has accepted, or
	// that were dropped.
	passed func(n int)
	// blocked is called when the engine's end stops accepting bytes, and when it
	// accepts them again.
	blocked func(is bool)
	buf     []byte
	// gone is set when the engine's end is gone.
	gone bool
	// lost is how many bytes a file has not taken, of which the log does not have the sum
	// yet. warned is when the log last said that it takes none; waits is set until it says
	// that it takes some again.
	lost   int
	warned time.Time
	waits  bool
}

// write writes the first n bytes of buf. When the engine's end is gone, the guest
// is either to be told, which closes the process's pipe, or the rest is read and
// dropped, so that the process does not block. So is what a file does not take,
// whose disk is full or fails: it may take what follows.
func (t *outlet) write(n int) (broken bool) {
	rest := t.buf[:n]
	var err error
	for len(rest) > 0 && !t.gone && err == nil {
		var taken int
		taken, err = t.writeSome(rest)
		rest = rest[taken:]
		t.passed(taken)
		t.note(taken, err, len(rest))
		t.gone = err != nil && !passes(err)
		if t.breaks && errors.Is(err, syscall.EPIPE) {
			return true
		}
	}
	if len(rest) > 0 {
		t.passed(len(rest))
	}
	if n == len(t.buf) && n < maxBuffer {
		t.buf = make([]byte, 2*n)
		t.widen()
	}
	return false
}

// widen makes a FIFO or pipe take as much as a read returns, so that writer and reader do
// not wait for each other for every part of it. Files of other kinds have no such size, and
// the kernel may refuse (pipe(7), pipe-user-pages-soft): then it is only slower.
func (t *outlet) widen() {
	raw, err := t.fifo.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if has, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && has < len(t.buf) {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, len(t.buf))
		}
	})
}

// passes reports whether a file may take output again after an error: what of the system
// is full or fails is not the end, unlike a reader that is gone and a file that was closed.
func passes(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno) && errno != unix.EPIPE
}

// warnPause is the least time between two such warnings: a container may make and take the
// room for its output itself.
const warnPause = time.Minute

// note logs, once each, that a file takes no output and that it takes some again. Of the
// last write rest bytes were not taken.
func (t *outlet) note(taken int, err error, rest int) {
	if taken > 0 && t.waits {
		log.L.Warnf("%s takes output again: %d bytes were lost", t.fifo.Name(), t.lost)
		t.lost, t.waits = 0, false
	}
	if !passes(err) {
		return
	}
	t.lost += rest
	if !t.waits && time.Since(t.warned) >= warnPause {
		log.L.WithError(err).Warnf("%s does not take a process's output, which is lost until it does", t.fifo.Name())
		t.warned, t.waits = time.Now(), true
	}
}

// writeSome waits until the engine's end accepts bytes, and writes as many as it
// accepts immediately. (os.File.Write returns only when everything was accepted: a
// slow reader would look like one that does not read.)
func (t *outlet) writeSome(data []byte) (n int, err error) {
	raw, err := t.fifo.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Write(int(fd), data)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		full := errors.Is(err, unix.EAGAIN)
		if full {
			t.blocked(true)
		}
		return !full
	})
	t.blocked(false)
	return max(n, 0), errors.Join(waitErr, err)
}
