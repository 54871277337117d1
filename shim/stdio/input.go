package stdio

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// inputBuffer is the size of one read, in bytes: the capacity of a FIFO.
const inputBuffer = 64 << 10

// input copies the engine's stdin FIFO to the guest, and half-closes the guest's
// stream at the end of file or after finish.
type input struct {
	fifo *os.File
	conn guest.Conn
	// finishing is closed by finish.
	finishing chan struct{}
	// ended is closed before run closes the FIFO.
	ended chan struct{}
	// held, if not nil, is a write end of the FIFO: see hold.
	held *os.File
}

func newInput(fifo *os.File, conn guest.Conn) *input {
	return &input{fifo: fifo, conn: conn, finishing: make(chan struct{}), ended: make(chan struct{})}
}

// hold opens the FIFO for writing too: from now on the engine may close its end
// and open it again. An input that the engine has ended already stays ended. It
// must not be called concurrently with itself or finish.
func (in *input) hold() (*os.File, error) {
	gone, err := writersGone(in.fifo)
	if err == nil && !gone {
		in.held, err = reopenFIFO(in.fifo, os.O_WRONLY)
	}
	select {
	case <-in.ended:
		return in.held, nil // with the FIFO closed there is nothing to hold
	default:
		return in.held, err
	}
}

// finish ends the input after what is in the FIFO now. It must not be called
// concurrently.
func (in *input) finish() {
	select {
	case <-in.finishing:
	default:
		close(in.finishing)
		if in.held != nil {
			_ = in.held.Close()
		}
		// Interrupt the read that waits for more.
		_ = in.fifo.SetReadDeadline(time.Unix(1, 0))
	}
}

func (in *input) run() {
	defer in.fifo.Close()
	defer close(in.ended)
	buf := make([]byte, inputBuffer)
	for {
		n, err := readFIFO(in.fifo, buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			in.drain(buf)
			break
		}
		if n > 0 {
			if _, err := in.conn.Write(buf[:n]); err != nil {
				return // the process, or the guest, is gone
			}
			continue
		}
		if err != nil && !errors.Is(err, os.ErrClosed) {
			return
		}
		break
	}
	_ = in.conn.CloseWrite()
}

// drain passes on what is in the FIFO, without waiting for more.
func (in *input) drain(buf []byte) {
	raw, err := in.fifo.SyscallConn()
	if err != nil {
		return
	}
	for {
		var (
			n       int
			readErr error
		)
		err := raw.Control(func(fd uintptr) { n, readErr = readReady(int(fd), buf) })
		if err != nil || n <= 0 || errors.Is(readErr, syscall.EAGAIN) {
			return
		}
		if _, err := in.conn.Write(buf[:n]); err != nil {
			return
		}
	}
}
