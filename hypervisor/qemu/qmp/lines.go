package qmp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxMessage is the longest message that is accepted from QEMU, in
	// bytes. query-qmp-schema's reply, the longest, has about 200 KiB.
	MaxMessage = 4 << 20
	// keepBuffer is the largest line buffer that is kept for the next line.
	keepBuffer = 1 << 20
)

// lineReader reads QMP's framing: one JSON object per line.
type lineReader struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next returns a line; it is valid until the next call.
func (l *lineReader) next() ([]byte, error) {
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > l.limit {
			return nil, fmt.Errorf("read message: longer than %d bytes", l.limit)
		}
		l.buf = append(l.buf, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.buf, err
		}
	}
}
