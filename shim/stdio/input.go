package stdio

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// inputBuffer is the size of one read, in bytes: the capacity of a FIFO.
const inputBuffer = 64 << 10

// parkWait is how long park lets the guest take what was read from the FIFO. A
// process that reads, or the buffers on the way to it, take that within
// milliseconds; one that does not read may never.
const parkWait = time.Second

// past is a deadline that interrupts at once.
var past = time.Unix(1, 0)

// input copies the engine's stdin FIFO to the guest, and half-closes the guest's
// stream at the end of file or after finish:
//
//	          park             rebind
//	[copying] ----> [parked] ---------> [copying]
//	    |               |
//	    | end           | rebind without a connection
//	    v               v
//	 [ended]         [ended]
//
// hold, finish, rebind and close are called with the IO's lock held.
type input struct {
	fifo *os.File
	// finishing is closed by finish.
	finishing chan struct{}
	// ended is closed before the FIFO is.
	ended chan struct{}
	// held, if not nil, is a write end of the FIFO: see hold.
	held *os.File

	// parking is closed by park, and stopped when run has returned. Both are
	// replaced by rebind, as is conn, when run does not run.
	parking, stopped chan struct{}
	conn             guest.Conn

	// What follows is run's, and park's when run has returned. rest is the part
	// of buf that was read from the FIFO, and not written to the guest.
	buf, rest []byte
	// sent is how many bytes were written to the guest, on all connections.
	sent uint64
}

func newInput(fifo *os.File, conn guest.Conn, sent uint64) *input {
	return &input{
		fifo: fifo, finishing: make(chan struct{}), ended: make(chan struct{}),
		parking: make(chan struct{}), stopped: make(chan struct{}), conn: conn,
		buf: make([]byte, inputBuffer), sent: sent,
	}
}

// hold opens the FIFO for writing too: from now on the engine may close its end
// and open it again. An input that the engine has ended already stays ended.
func (in *input) hold() error {
	gone, err := writersGone(in.fifo)
	if err == nil && !gone {
		in.held, err = reopenFIFO(in.fifo, os.O_WRONLY)
	}
	if isClosed(in.ended) {
		return nil // with the FIFO closed there is nothing to hold
	}
	return err
}

// finish ends the input after what is in the FIFO now; a parked one ends when
// it is copied again.
func (in *input) finish() {
	if isClosed(in.finishing) {
		return
	}
	close(in.finishing)
	if in.held != nil {
		_ = in.held.Close()
	}
	_ = in.fifo.SetReadDeadline(past) // interrupt the read that waits for more
}

// park ends the copying when what was read from the FIFO has been written, or
// ctx or parkWait has ended: then the rest is kept for the next connection. It
// returns how many bytes were written in all, and whether the input continues. It
// is called without the IO's lock, and not concurrently with rebind.
func (in *input) park(ctx context.Context) (sent uint64, bound bool) {
	ctx, cancel := context.WithTimeout(ctx, parkWait)
	defer cancel()
	close(in.parking)
	_ = in.fifo.SetReadDeadline(past)
	conn := in.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(past) })
	defer stop()
	<-in.stopped
	return in.sent, !isClosed(in.ended)
}

// rebind continues after park with a new connection, which it owns from now on.
// Without one the input ends.
func (in *input) rebind(conn guest.Conn) {
	switch {
	case isClosed(in.ended):
		if conn != nil {
			_ = conn.Close()
		}
	case conn == nil:
		in.end()
	default:
		_ = in.conn.Close()
		in.conn = conn
		in.parking, in.stopped = make(chan struct{}), make(chan struct{})
		if !isClosed(in.finishing) {
			_ = in.fifo.SetReadDeadline(time.Time{})
		}
		go in.run()
	}
}

// close ends the input at once.
func (in *input) close() {
	_ = in.fifo.Close()
	_ = in.conn.Close()
	if in.held != nil {
		_ = in.held.Close()
	}
}

// end closes the engine's end.
func (in *input) end() {
	close(in.ended)
	_ = in.fifo.Close()
}

func (in *input) run() {
	defer close(in.stopped)
	if !in.copy() {
		in.end()
	}
}

// copy copies until the end of the input, or until it is parked.
func (in *input) copy() (parked bool) {
	for {
		if err := in.pass(); err != nil {
			// Only park sets a deadline. Otherwise the process, or the guest, is
			// gone.
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		if isClosed(in.parking) {
			return true
		}
		n, err := in.read()
		switch {
		case n > 0:
			in.rest = in.buf[:n]
		case errors.Is(err, os.ErrDeadlineExceeded):
			// by park
		case err != nil && !errors.Is(err, os.ErrClosed):
			return false
		default:
			_ = in.conn.CloseWrite()
			return false
		}
	}
}

// pass writes what was read to the guest.
func (in *input) pass() error {
	if len(in.rest) == 0 {
		return nil
	}
	n, err := in.conn.Write(in.rest)
	in.rest = in.rest[n:]
	in.sent += uint64(n)
	return err
}

// read waits for input. It returns 0 and nil at the end, and
// os.ErrDeadlineExceeded when it was interrupted to park.
func (in *input) read() (int, error) {
	n, err := readFIFO(in.fifo, in.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) && isClosed(in.finishing) && !isClosed(in.parking) {
		return readNow(in.fifo, in.buf), nil
	}
	return n, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
