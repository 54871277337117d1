package child

import (
	"strings"
	"sync"
	"unicode"
)

// Tail keeps the last bytes that were written to it. It is safe for
// concurrent use, and its writes never block or fail.
type Tail struct {
	mu    sync.Mutex
	buf   []byte // at most limit bytes; a ring once it is full
	next  int    // where the next byte goes once the ring is full
	limit int
}

// NewTail makes a Tail of the last limit bytes; limit must be positive.
func NewTail(limit int) *Tail {
	return &Tail{limit: max(limit, 1)}
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if n >= t.limit {
		t.buf = append(t.buf[:0], p[n-t.limit:]...)
		t.next = 0
		return n, nil
	}
	if room := t.limit - len(t.buf); room > 0 {
		k := min(room, len(p))
		t.buf = append(t.buf, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(t.buf[t.next:], p)
		t.next = (t.next + k) % t.limit
		p = p[k:]
	}
	return n, nil
}

// String returns what is kept, oldest byte first, made safe for a log by
// Printable.
func (t *Tail) String() string {
	t.mu.Lock()
	raw := make([]byte, 0, len(t.buf))
	raw = append(raw, t.buf[t.next:]...)
	raw = append(raw, t.buf[:t.next]...)
	t.mu.Unlock()
	return Printable(string(raw))
}

// LastLines returns the last n lines that are not blank, without a final
// newline.
func (t *Tail) LastLines(n int) string {
	var lines []string
	for line := range strings.Lines(t.String()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Printable makes foreign output safe to log or print: a carriage return
// before a newline is dropped; other control characters, invalid UTF-8 and
// everything else that is not printable become '?'. Newlines and tabs stay.
// A guest's output could otherwise control the reader's terminal or forge log
// lines.
func Printable(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}
