package logs

import (
	"bytes"
	"sync"

	"github.com/katabox/katabox/agent/api"
)

// Ring is a bounded buffer of lines. It is an io.Writer that takes each Write
// as one line.
type Ring struct {
	limit int

	mu      sync.Mutex
	lines   [][]byte
	size    int
	first   uint64        // sequence number of lines[0]
	changed chan struct{} // closed and replaced when a line is added
	read    bool          // a reader has attached
}

// NewRing makes a ring that holds at most limit bytes.
func NewRing(limit int) *Ring {
	return &Ring{limit: limit, changed: make(chan struct{})}
}

// Write adds one line, cut to api.MaxLogLine bytes with its newline. It never
// blocks and never fails.
func (r *Ring) Write(p []byte) (int, error) {
	line := bytes.TrimRight(p, "\n")
	if len(line) > api.MaxLogLine-1 {
		line = line[:api.MaxLogLine-1]
	}
	line = append(bytes.Clone(line), '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.size += len(line)
	for r.size > r.limit && len(r.lines) > 1 {
		r.size -= len(r.lines[0])
		r.lines[0] = nil
		r.lines = r.lines[1:]
		r.first++
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return len(p), nil
}

// after returns the lines from sequence number next on, the number of lines
// that were dropped before them, the following sequence number, and a channel
// that is closed when there is more.
func (r *Ring) after(next uint64) (lines [][]byte, lost, following uint64, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next < r.first {
		lost, next = r.first-next, r.first
	}
	following = r.first + uint64(len(r.lines))
	if next < following {
		lines = append(lines, r.lines[next-r.first:]...)
	}
	return lines, lost, following, r.changed
}

// take records that a reader has attached.
func (r *Ring) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = true
}

func (r *Ring) taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}
