package vsock

import (
	"net"
	"sync"
	"time"
)

// deadline is a point in time at which waiters of a condition are woken. The
// condition's lock guards it.
type deadline struct {
	cond    *sync.Cond
	timer   *time.Timer
	expired bool
	// generation identifies a timer that was replaced while it fired.
	generation uint64
}

// set replaces the deadline; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.stop()
	d.expired = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.expire()
		return
	}
	generation := d.generation
	d.timer = time.AfterFunc(left, func() {
		d.cond.L.Lock()
		defer d.cond.L.Unlock()
		if d.generation == generation {
			d.expire()
		}
	})
}

func (d *deadline) expire() {
	d.expired = true
	d.cond.Broadcast()
}

// stop stops the timer.
func (d *deadline) stop() {
	d.generation++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.readBy, &c.writeBy)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeBy) }

func (c *conn) setDeadlines(t time.Time, which ...*deadline) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range which {
		d.set(t)
	}
	return nil
}
