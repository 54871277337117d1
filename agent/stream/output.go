package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/relay"
)

// output carries what a process writes to the host, and counts it.
type output struct {
	binding
	terminal bool
	file     *watched // nil until there is a terminal
	// read is the number of bytes read from file, including those in rest and
	// ahead.
	read uint64
	// sent is how many of them are not for a later connection: sent, or dropped
	// without one.
	sent  uint64
	rest  []byte // of the block that Park interrupted; it comes before ahead
	ahead []byte // read by total, not yet sent
	eof   bool   // file is at its end
	// relay copies while it is not nil. read and sent count that at its end.
	relay *relay.Relay
	// counting is the number of calls that wait for that.
	counting int
}

// errHalted is why a run ends that Park or a new connection stops.
var errHalted = errors.New("copying is halted")

// newOutput carries what comes from a pipe.
func newOutput(pipe *watched) *output {
	o := &output{file: pipe}
	o.init()
	return o
}

// newTerminalOutput carries what comes from a terminal, once setTerminal is called.
func newTerminalOutput() *output {
	o := &output{terminal: true}
	o.init()
	return o
}

func (o *output) setTerminal(file *watched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file = file
	o.changed.Broadcast()
}

// reserve implements end. It stops the dropping: from here on, what the process
// writes is for the new connection.
func (o *output) reserve() (claim int, sent uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wasDropping := o.state == dropping
	if claim, err = o.claim(); err != nil {
		return 0, 0, err
	}
	if wasDropping {
		o.wake()
	}
	return claim, o.sent, nil
}

// attach implements end.
func (o *output) attach(claim int, conn net.Conn, file string, begin func()) []func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.run
	r := o.accept(claim, conn, begin)
	if r == nil {
		return nil
	}
	r.bulk = newBulk(file)
	return []func(){func() {
		before.wait() // It may still be dropping.
		o.pump(r)
	}}
}

// drop returns the copying of a terminal whose output no connection will carry.
func (o *output) drop() func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state, o.run = dropping, &run{done: make(chan struct{})}
	r := o.run
	return func() { o.pump(r) }
}

// park halts the copying. The result is closed when the connection is; it is nil
// if there is none.
func (o *output) park() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.halt()
}

// release implements end. What the old connection was not sent is for the new one.
func (o *output) release() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.replaceable {
		return nil
	}
	return o.halt()
}

// halt is park with mu held.
func (o *output) halt() <-chan struct{} {
	switch o.state {
	case bound:
	case parking:
		return o.run.done
	case reserved:
		o.state = unbound
		return nil
	default:
		return nil
	}
	o.state = parking
	_ = o.run.conn.SetWriteDeadline(time.Now())
	o.wake()
	return o.run.done
}

// wake wakes a run that waits for the file's next bytes. mu is held.
func (o *output) wake() {
	o.changed.Broadcast()
	o.stopRelay()
	o.wakeRead()
}

// wakeRead ends a read that waits. mu is held.
func (o *output) wakeRead() {
	if o.file != nil {
		o.file.wake()
	}
}

// halted reports whether a run has to stop. mu is held.
func (o *output) halted(r *run) bool {
	return o.run != r || o.state != bound && o.state != dropping
}

// pump copies until the last writer is gone, then closes the connection, which
// is the host's end of file. If the host closes it first, the pipe is closed,
// and the process gets SIGPIPE. A terminal cannot be half-closed, so its output
// is then dropped, as without a connection.
func (o *output) pump(r *run) {
	defer close(r.done)
	r.start()
	why := o.copy(r)
	if r.conn != nil {
		_ = r.conn.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.run != r || o.state == reserved:
	case errors.Is(why, errHalted):
		o.state = unbound
	default:
		o.state = ended
		o.dropFile()
	}
}

// dropFile closes a pipe at its end: an engine may keep an exec long after that. A
// terminal's file is also its input. mu is held.
func (o *output) dropFile() {
	if o.eof && !o.terminal {
		_ = o.file.Close()
	}
}

// copy copies until an error, and returns it.
func (o *output) copy(r *run) error {
	if err := o.awaitFile(r); err != nil {
		return err
	}
	size := firstBlock
	block := newBlock(size)
	for last := (time.Time{}); ; {
		n, err := o.next(r, block[headroom:])
		if err != nil {
			return err
		}
		if err := o.send(r, block[:headroom+n]); err != nil {
			return err
		}
		last = gather(last, n)
		if n == size && n < maxBlock {
			size *= 2
			block = o.widen(size)
		}
		if n < muchOutput {
			continue
		}
		if size < maxBlock {
			size = maxBlock
			block = o.widen(size)
		}
		if err := o.relayed(r, block[headroom:]); err != nil {
			return err
		}
	}
}

// awaitFile waits until there is a file to read from. A run that was halted before
// it began must not read: the run before it may have been woken, and have cleared
// the deadline, for both.
func (o *output) awaitFile(r *run) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.halted(r) {
		if o.file != nil {
			return nil
		}
		if o.gone {
			return errClosed
		}
		o.changed.Wait()
	}
	return errHalted
}

// send sends a block's data, or drops it without a connection. What a halted run has not
// sent is kept: the host must not take a connection that ends now for a reader
// that is lost.
func (o *output) send(r *run, block []byte) (err error) {
	n := 0
	if r.conn != nil {
		n, err = r.write(block)
	}
	data := block[headroom:]
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent += uint64(n)
	if o.halted(r) {
		o.rest = slices.Concat(data[n:], o.rest)
		return errHalted
	}
	o.sent += uint64(len(data) - n)
	if err == nil {
		return nil
	}
	if !o.terminal {
		_ = o.file.Close()
		return err
	}
	_ = r.conn.Close()
	o.state, r.conn = dropping, nil
	return nil
}

// widen makes a block of that size and a pipe that fills several.
func (o *output) widen(size int) []byte {
	if !o.terminal {
		_ = o.file.withFile(func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size*pipeBlocks)
			return err // A small pipe is only slower.
		})
	}
	return newBlock(size)
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

// next waits for and returns the next bytes, at least one unless there is an
// error. io.EOF is the end; a terminal returns EIO when no process has it open any
// more (n_tty.c, n_tty_read), which Stdio prevents until its process has ended.
func (o *output) next(r *run, block []byte) (n int, err error) {
	for {
		var rerr error
		err = o.file.do(func(fd int) bool {
			n, rerr = o.take(fd, block)
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, errors.Join(err, rerr)
		}
		// total or a halt set it to wake us. A halt sets the state first, so it is
		// seen here or wakes us again.
		o.file.letWait()
		if o.mustStop(r) {
			return 0, errHalted
		}
	}
}

func (o *output) mustStop(r *run) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.halted(r)
}

// take reads without waiting; what was read before and not sent comes first.
func (o *output) take(fd int, block []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := shift(block, &o.rest); n > 0 {
		return n, nil
	}
	if n := shift(block, &o.ahead); n > 0 {
		return n, nil
	}
	if o.eof {
		return 0, io.EOF
	}
	n, err := readOnce(fd, block)
	o.count(n, err)
	return n, err
}

// shift moves bytes from the begin of data to block.
func shift(block []byte, data *[]byte) int {
	n := copy(block, *data)
	if *data = (*data)[n:]; len(*data) == 0 {
		*data = nil
	}
	return n
}

func (o *output) count(n int, err error) {
	o.read += uint64(n)
	o.eof = err != nil && !errors.Is(err, unix.EAGAIN)
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
