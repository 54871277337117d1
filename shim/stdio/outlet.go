package stdio

import (
	"errors"
	"os"
	"syscall"
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
	buf    []byte
	// dropping is set when the engine's end is gone.
	dropping bool
}

// write writes the first n bytes of buf. When the engine's end is gone, the guest
// is either to be told, which closes the process's pipe, or the rest is read and
// dropped, so that the process does not block.
func (t *outlet) write(n int) (broken bool) {
	if n > 0 && !t.dropping {
		_, err := t.fifo.Write(t.buf[:n])
		t.dropping = err != nil
		if t.breaks && errors.Is(err, syscall.EPIPE) {
			return true
		}
	}
	if n == len(t.buf) && n < maxBuffer {
		t.buf = make([]byte, 2*n)
	}
	return false
}
