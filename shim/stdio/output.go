package stdio

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// The size of one read, in bytes. It grows as long as reads fill it: many
// processes write little, and each has a buffer.
const (
	firstBuffer = 16 << 10
	maxBuffer   = 256 << 10
)

type reader interface{ Read([]byte) (int, error) }

// guestStream is a connection with the output of a process.
type guestStream interface {
	reader
	closer
}

// output copies a guest's stream to the engine's FIFO and counts the bytes.
type output struct {
	// breaks: a FIFO without a reader gives the process a broken pipe.
	breaks bool

	mu sync.Mutex // guards what follows
	// passed is the number of bytes given to the engine.
	passed uint64
	ended  bool
	// changed is closed and replaced at each change.
	changed chan struct{}
}

func newOutput(breaks bool) *output {
	return &output{breaks: breaks, changed: make(chan struct{})}
}

// copy runs until the guest's stream ends. When the engine's end is gone, it
// either tells the guest, which closes the process's pipe, or reads and drops the
// rest, so that the process does not block.
func (o *output) copy(fifo *os.File, conn guestStream) {
	defer o.end()
	buf := make([]byte, firstBuffer)
	dropping := false
	for {
		n, err := conn.Read(buf)
		if n > 0 && !dropping {
			_, werr := fifo.Write(buf[:n])
			dropping = werr != nil
			if o.breaks && errors.Is(werr, syscall.EPIPE) {
				_ = conn.Close()
				return
			}
		}
		o.add(n)
		if err != nil {
			return // io.EOF, or the guest is gone
		}
		if n == len(buf) && n < maxBuffer {
			buf = make([]byte, 2*n)
		}
	}
}

func (o *output) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.passed += uint64(n)
	o.notify()
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.notify()
}

// notify must be called with mu held.
func (o *output) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// await waits until n bytes were passed on, until the stream or ctx has ended, or
// until nothing has moved for a while.
func (o *output) await(ctx context.Context, n uint64) {
	for {
		o.mu.Lock()
		enough, changed := o.ended || o.passed >= n, o.changed
		o.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-changed:
		case <-time.After(stalled):
			return
		case <-ctx.Done():
			return
		}
	}
}
