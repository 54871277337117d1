package stream

import (
	"net"
	"os"
	"sync"
	"time"
)

// lastInput is how long an ending input waits for bytes that are still under
// way from the host.
const lastInput = 100 * time.Millisecond

// input carries what the host sends to a process.
type input struct {
	mu     sync.Mutex
	file   *os.File // the agent's end; nil until there is one
	conn   net.Conn
	ready  chan struct{} // closed when file is set
	gone   chan struct{} // closed by close
	ending bool
	// terminal is set if the file is shared with the output and stays open.
	terminal bool
}

func newInput(file *os.File) *input {
	in := &input{ready: make(chan struct{}), gone: make(chan struct{}), terminal: file == nil}
	if file != nil {
		in.setFile(file)
	}
	return in
}

func (in *input) setFile(file *os.File) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.file = file
	close(in.ready)
}

func (in *input) attach(conn net.Conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conn = conn
	if in.ending {
		_ = conn.SetReadDeadline(time.Now().Add(lastInput))
	}
}

// pump copies until the host's half-close, the process's end or close. Closing
// the pipe is then the process's end of file.
func (in *input) pump() {
	defer in.conn.Close()
	select {
	case <-in.ready:
	case <-in.gone:
		return
	}
	if !in.terminal {
		defer in.file.Close()
	}
	block := make([]byte, inputBlock)
	for {
		n, err := in.conn.Read(block)
		if n > 0 {
			if _, werr := in.file.Write(block[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
		in.extend()
	}
}

// extend extends the wait of an ending input, because bytes are still arriving.
func (in *input) extend() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ending {
		_ = in.conn.SetReadDeadline(time.Now().Add(lastInput))
	}
}

// end ends the input after what has arrived.
func (in *input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ending = true
	if in.conn != nil {
		_ = in.conn.SetReadDeadline(time.Now().Add(lastInput))
		return
	}
	if in.file != nil {
		_ = in.file.Close()
	}
}

func (in *input) close() {
	in.mu.Lock()
	file, conn := in.file, in.conn
	select {
	case <-in.gone:
	default:
		close(in.gone)
	}
	in.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	if file != nil {
		_ = file.Close()
	}
}
