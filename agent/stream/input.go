package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

const (
	// lastInput is how long an ending input waits for bytes that are still under
	// way from the host.
	lastInput = 100 * time.Millisecond
	// lastParked is the same for an input that is parked and not counted: the host
	// has ended it, and the process must not miss its end of file.
	lastParked = time.Second
	// maxKept is how much of a parked input is kept for its process, in bytes. A
	// connection's window is 256 KiB in each direction (hypervisor/vsock).
	maxKept = 1 << 20
)

// input carries what the host sends to a process. The reader of a connection
// writes it to the file itself. Park interrupts that: what the process has not taken
// and what is read then goes to a queue, which a writer empties. So a process that
// does not read holds up no reader that Park waits for.
type input struct {
	binding
	file inputFile // nil until there is a terminal
	// terminal is set if the file is shared with the output and stays open.
	terminal bool
	writing  bool   // the writer was started
	queue    []byte // read and not yet taken by the writer
	hand     int    // how many bytes are being written now
	// direct is set while it is the reader that writes them.
	direct bool
	// interrupted is set while the file has a deadline for that.
	interrupted bool
	// over is set when nothing more is read; the writer ends after the queue.
	over bool
	// ending is set by end: the input is over after what has arrived.
	ending bool
	// received is how many bytes have been read from all connections.
	received uint64
	// target is what received has to reach while parking, if counted is set.
	target  uint64
	counted bool
	// keep is how many bytes are held at most while parking.
	keep int
	// announced is set if the host said at the last Park that it has not ended the
	// input.
	announced bool
	// releasing is set when a reservation waits for the reader's end.
	releasing bool
	// limited is set while the reader's connection has a deadline.
	limited bool
}

// inputFile is what a process reads from: an os.File that is a pipe, or a terminal.
type inputFile interface {
	io.WriteCloser
	// wake ends a Write that waits with os.ErrDeadlineExceeded, and those that begin
	// before letWait.
	wake()
	letWait()
}

// polledPipe is a pipe in Go's poller: the process's reads wake it only after the pipe
// was full.
type polledPipe struct{ *os.File }

func (p polledPipe) wake()    { _ = p.SetWriteDeadline(time.Now()) }
func (p polledPipe) letWait() { _ = p.SetWriteDeadline(time.Time{}) }

func newInput(pipe *os.File) *input {
	in := &input{file: polledPipe{pipe}}
	in.init()
	return in
}

// newTerminalInput is what goes to a terminal, once setTerminal is called.
func newTerminalInput() *input {
	in := &input{terminal: true}
	in.init()
	return in
}

func (in *input) setTerminal(file *watched) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.file = file
	in.changed.Broadcast()
}

// close ends the stream: the copying fails.
func (in *input) close() {
	in.mu.Lock()
	file := in.file
	in.mu.Unlock()
	in.binding.close()
	if file != nil {
		_ = file.Close()
	}
}

// reserve implements end.
func (in *input) reserve() (claim int, sent uint64, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	claim, err = in.claim()
	return claim, in.received, err
}

// attach implements end.
func (in *input) attach(claim int, conn net.Conn, _ string, begin func()) []func() {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.accept(claim, conn, begin)
	if r == nil {
		return nil
	}
	in.releasing, in.announced = false, false
	copying := []func(){func() { in.read(r) }}
	if !in.writing {
		in.writing = true
		copying = append(copying, in.write)
	}
	return copying
}

// read passes on what arrives until the host's half-close, the process's end, Park
// or close.
func (in *input) read(r *run) {
	defer close(r.done)
	r.start()
	block := make([]byte, inputBlock)
	for size := in.room(r); size > 0; size = in.room(r) {
		n, err := r.conn.Read(block[:size])
		in.pass(block[:n])
		if err != nil {
			in.met(err)
		}
	}
	_ = r.conn.Close()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = in.over || in.ending
	if in.state = unbound; in.over {
		in.state = ended
	}
	in.changed.Broadcast()
}

// room waits until the next bytes may be read, and returns how many; 0 is the end.
// The reader's limit begins only then: bytes may have arrived meanwhile.
func (in *input) room(r *run) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.over && !in.gone && !in.arrived() {
		if n := in.space(); n > 0 {
			if in.limited || in.awaitsLast() {
				in.limit(r)
			}
			return n
		}
		if in.releasing {
			break // The next connection does not wait for the process.
		}
		in.changed.Wait()
	}
	return 0
}

// space returns how many bytes may be read now: one block when the process has
// taken the one before, but all that was sent while parking. mu is held.
func (in *input) space() int {
	held := len(in.queue) + in.hand
	if in.state != parking {
		if held > 0 {
			return 0
		}
		return inputBlock
	}
	n := min(inputBlock, in.keep-held)
	if in.counted {
		n = int(min(uint64(max(n, 0)), in.target-in.received))
	}
	return n
}

// met notes the error that the reader met.
func (in *input) met(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.ending, in.endsWith(err):
		in.over = true
	case !errors.Is(err, os.ErrDeadlineExceeded):
		in.state = parking
		in.target, in.counted = in.received, true
	case in.awaitsLast():
		in.target, in.counted = in.received, true
	}
	in.changed.Broadcast()
}

// awaitsLast reports whether the reader waits only for bytes that are under way.
// mu is held.
func (in *input) awaitsLast() bool {
	return in.ending || in.state == parking && !in.counted
}

// limit sets how long the reader waits for the next bytes. mu is held.
func (in *input) limit(r *run) {
	var until time.Time
	switch {
	case in.arrived():
		until = time.Now()
	case in.ending, in.releasing && in.announced:
		until = time.Now().Add(lastInput)
	case in.awaitsLast():
		until = time.Now().Add(lastParked)
	}
	in.limited = !until.IsZero()
	_ = r.conn.SetReadDeadline(until)
}

// end ends the input after what has arrived.
func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ending = true
	if in.state == bound || in.state == parking {
		in.limit(in.run)
		return
	}
	in.over = true
	in.changed.Broadcast()
	if !in.writing && in.file != nil {
		_ = in.file.Close()
	}
}
