package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// output carries what a process writes to the host, and counts it.
type output struct {
	terminal bool

	mu    sync.Mutex
	file  *os.File // the agent's end; nil until there is one
	conn  net.Conn
	ready chan struct{} // closed when file is set
	gone  chan struct{} // closed by close
	// read is the number of bytes read from file, including those in ahead.
	read  uint64
	ahead []byte // read by total, not yet sent
	ended bool
}

func newOutput(file *os.File, terminal bool) *output {
	o := &output{terminal: terminal, ready: make(chan struct{}), gone: make(chan struct{})}
	if file != nil {
		o.setFile(file)
	}
	return o
}

func (o *output) setFile(file *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file = file
	close(o.ready)
}

func (o *output) attach(conn net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.conn = conn
}

// pump copies until the last writer is gone, then closes the connection, which
// is the host's end of file. If the host closes it first, the pipe is closed,
// and the process gets SIGPIPE. A terminal cannot be half-closed, so its output
// is then dropped, as without a connection.
func (o *output) pump(conn net.Conn) {
	if conn != nil {
		defer conn.Close()
	}
	select {
	case <-o.ready:
	case <-o.gone:
		return
	}
	block := make([]byte, firstBlock)
	for last := (time.Time{}); ; {
		n, err := o.next(block)
		if n > 0 && conn != nil {
			if _, werr := conn.Write(block[:n]); werr != nil {
				_ = conn.Close()
				conn = nil
				if !o.terminal {
					_ = o.file.Close()
					return
				}
			}
		}
		if err != nil {
			return
		}
		last = gather(last, n)
		if n == len(block) && n < maxBlock {
			block = o.widen(2 * n)
		}
	}
}

// widen makes a block of that size and a pipe that fills several.
func (o *output) widen(size int) []byte {
	if raw, err := o.file.SyscallConn(); err == nil && !o.terminal {
		_ = raw.Control(func(fd uintptr) {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size*pipeBlocks) // A small pipe is only slower.
		})
	}
	return make([]byte, size)
}

// A process that writes line by line must not cost a packet each: after a small
// block that followed another soon, pump waits for more. The first block after
// a pause is sent immediately, so that an echo is not delayed.
const (
	smallBlock = 16 << 10
	gatherTime = 500 * time.Microsecond
)

// gather waits if the block of n bytes just sent was small and came soon after
// the one at last. It returns when this one was sent.
func gather(last time.Time, n int) time.Time {
	now := time.Now()
	if n < smallBlock && now.Sub(last) < 2*gatherTime {
		time.Sleep(gatherTime)
		return time.Now()
	}
	return now
}

// next waits for and returns the next bytes. io.EOF is the end; a terminal
// returns EIO when no process has it open any more (tty_ldisc.c, n_tty_read).
func (o *output) next(block []byte) (n int, err error) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		var rerr error
		err = raw.Read(func(fd uintptr) bool {
			n, rerr = o.take(int(fd), block)
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			_ = o.file.SetReadDeadline(time.Time{}) // total set it to wake us.
			continue
		}
		return n, errors.Join(err, rerr)
	}
}

// take reads without waiting; what total read ahead comes first.
func (o *output) take(fd int, block []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ahead) > 0 {
		n := copy(block, o.ahead)
		o.ahead = o.ahead[n:]
		return n, nil
	}
	if o.ended {
		return 0, io.EOF
	}
	n, err := readOnce(fd, block)
	o.count(n, err)
	return n, err
}

func (o *output) count(n int, err error) {
	o.read += uint64(n)
	o.ended = err != nil && !errors.Is(err, unix.EAGAIN)
}

func readOnce(fd int, block []byte) (int, error) {
	for {
		n, err := unix.Read(fd, block)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// total returns the number of bytes written so far.
func (o *output) total() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil || o.ended {
		return o.read
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return o.read
	}
	total := o.read
	_ = raw.Control(func(fd uintptr) {
		if !o.terminal {
			total += readable(int(fd))
			return
		}
		o.readAhead(int(fd))
		total = o.read
	})
	return total
}

// readable returns FIONREAD's result; package unix has it under another name.
func readable(fd int) uint64 {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n)
}

// maxAhead bounds readAhead: more than a terminal can hold, 8 KiB of flip
// buffer and 4 KiB of line discipline (drivers/tty/pty.c, n_tty.c).
const maxAhead = 64 << 10

// readAhead empties a terminal: FIONREAD does not count what is in the flip
// buffer, so it must be read.
func (o *output) readAhead(fd int) {
	block := make([]byte, 4<<10)
	for len(o.ahead) < maxAhead && !o.ended {
		n, err := readOnce(fd, block)
		o.count(n, err)
		o.ahead = append(o.ahead, block[:n]...)
		if err != nil {
			break
		}
	}
	_ = o.file.SetReadDeadline(time.Now()) // Wakes the pump.
}

func (o *output) close() {
	o.mu.Lock()
	file, conn := o.file, o.conn
	select {
	case <-o.gone:
	default:
		close(o.gone)
	}
	o.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	if file != nil {
		_ = file.Close()
	}
}
