package monitor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
)

// blockSize is the most that one read or splice transfers, in bytes, and the size
// of the FIFOs.
const blockSize = 256 << 10

// pieceSize is the most that one write transfers, in bytes: a blocking write to a
// terminal or socket returns when its reader has made room for all of it, and only then
// shows that the reader reads.
const pieceSize = 4 << 10

// relay copies one stream until its end, in a goroutine and with blocking
// descriptors: a process that does nothing else needs no poller.
type relay struct {
	src, dst int
	// stream is its number: 0, 1 or 2.
	stream int
	output bool
	// writing is set while bytes were read from src and not yet written to dst.
	writing atomic.Bool
	// moved counts the bytes that dst has taken, or that were dropped.
	moved atomic.Int64
	// loss is what dst, of an output, has not taken.
	loss loss
	done chan struct{}
	// finish is called at the end, before done is closed.
	finish func()
}

func (r *relay) run() {
	defer close(r.done)
	defer r.finish()
	if r.output {
		// Until the shim has opened its end, read(2) and splice(2) report end of
		// file. poll(2) waits: it reports POLLHUP only once there has been a
		// writer (fs/pipe.c, pipe_poll).
		awaitReady(r.src, unix.POLLIN)
	}
	if !isPipe(r.src) || !isPipe(r.dst) || !r.splice() {
		r.copy()
	}
}

// splice moves pages from pipe to pipe. It reports whether the stream has ended;
// false means that these two cannot be spliced. It must not be used with a
// terminal or a socket: it holds the pipe's lock while the other end blocks
// (fs/splice.c, splice_file_to_pipe), and the shim's open, write and close of
// that FIFO then block too, whatever their flags.
func (r *relay) splice() bool {
	for {
		n, err := unix.Splice(r.src, nil, r.dst, nil, blockSize, unix.SPLICE_F_MOVE)
		r.moved.Add(max(n, 0))
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN): // the host's end is non-blocking
			r.awaitBoth()
		case errors.Is(err, unix.EINVAL):
			return false
		case err != nil || n == 0:
			return true
		}
	}
}

func (r *relay) awaitBoth() {
	awaitReady(r.src, unix.POLLIN)
	awaitReady(r.dst, unix.POLLOUT)
}

func awaitReady(fd int, events int16) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// copy copies with read and write.
func (r *relay) copy() {
	block := make([]byte, blockSize)
	for {
		n, err := retry(r.src, unix.POLLIN, func() (int, error) { return unix.Read(r.src, block) })
		if err != nil || n <= 0 {
			return // a terminal that was hung up returns EIO
		}
		r.writing.Store(true)
		if !r.write(block[:n]) {
			return
		}
		r.writing.Store(false)
	}
}

// write writes data. It reports whether the stream goes on.
func (r *relay) write(data []byte) bool {
	for len(data) > 0 {
		n, err := retry(r.dst, unix.POLLOUT, func() (int, error) { return unix.Write(r.dst, data[:min(len(data), pieceSize)]) })
		if err != nil {
			return r.dropped(len(data), err)
		}
		r.moved.Add(int64(n))
		data = data[n:]
	}
	return true
}

// retry repeats a call after an interruption, and waits if a descriptor whose
// flags are not ours to change is non-blocking.
func retry(fd int, events int16, call func() (int, error)) (int, error) {
	for {
		n, err := call()
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			awaitReady(fd, events)
		default:
			return n, err
		}
	}
}

// awaitQuiet waits for the stream's end, or until nothing was in transit for some
// time. If the host's end accepts no bytes, it waits for its reader until ctx ends.
func (r *relay) awaitQuiet(ctx context.Context, quiet time.Duration) {
	inTransit := func() bool { return r.writing.Load() || client.Pending(r.src) > 0 }
	_ = client.AwaitQuiet(ctx, r.done, inTransit, quiet) // the rest is given up
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}
