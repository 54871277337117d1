package vsock

import "sync"

// line is the queue of writers that wait for the guest's receive buffers. A
// writer that is called has a turn: it sends, and then calls the next if there
// are buffers left. Writers that find a line join it, so that none starves.
type line struct {
	mu      sync.Mutex
	waiting []*conn
}

// join puts a connection at the end, once.
func (l *line) join(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.inLine {
		c.inLine = true
		l.waiting = append(l.waiting, c)
	}
}

// empty reports whether no writer waits.
func (l *line) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// next gives the turn to the first writer that still wants it. It is called
// with no lock held.
func (l *line) next() {
	for {
		c := l.leave()
		if c == nil || c.giveTurn() {
			return
		}
	}
}

// leave removes the first writer from the line.
func (l *line) leave() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.waiting = nil
		return nil
	}
	c := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	c.inLine = false
	return c
}
