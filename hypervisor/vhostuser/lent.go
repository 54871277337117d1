package vhostuser

import (
	"errors"
	"fmt"
	"time"
)

// drainWait bounds how long the stop of a queue waits for chains that a device
// has taken: those may wait for a file system that hangs.
const drainWait = 2 * time.Second

// lent is what a queue knows of the chains that its device has taken. The
// queue's mu guards it.
type lent struct {
	chains int
	// epoch counts the driver's set-ups. What comes back from an earlier one
	// is dropped, for the driver has forgotten it.
	epoch uint64
	// drained is closed when the last chain is back, while stop waits for it;
	// chains are still given to the ring then.
	drained chan struct{}
	// late are chains that came back while the queue was stopped.
	late []usedElem
}

// usedElem is an entry of the used ring.
type usedElem struct {
	head    uint16
	written uint32
}

// Take takes the next available chain into c, which is reused, and keeps the
// memory behind it mapped until Return, which must follow. ok is false if there
// is none; more reports whether there is another one. Unlike in Do, the caller
// may take as long as it likes with the chain, and touches its memory at its own
// risk: a page that is not there is a fault there (Guard). Errors are Do's.
func (q *Queue) Take(c *Chain) (ok, more bool, err error) {
	err = q.Do(func(r *Ring) error {
		if ok, err = r.Pop(c); !ok {
			return err
		}
		c.mem, c.epoch = q.mem, q.lent.epoch
		c.mem.retain()
		q.lent.chains++
		more = r.Available()
		return nil
	})
	return ok && err == nil, more, err
}

// Return gives a taken chain back to the driver, with the number of bytes
// written to its In, and interrupts it. If the queue has stopped meanwhile, the
// driver gets the chain when it goes on, and never after a reset.
func (q *Queue) Return(c *Chain, written uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	mem := c.mem
	c.mem = nil
	err := q.giveBack(c, written)
	q.lent.chains--
	if q.lent.chains == 0 && q.lent.drained != nil {
		close(q.lent.drained)
		q.lent.drained = nil
	}
	return errors.Join(err, mem.release())
}

// giveBack must be called with mu held.
func (q *Queue) giveBack(c *Chain, written uint32) error {
	switch {
	case c.epoch != q.lent.epoch || q.mem == nil:
		return nil
	case !q.running && q.lent.drained == nil:
		q.lent.late = append(q.lent.late, usedElem{c.Head, written})
		return nil
	}
	return q.push(usedElem{c.Head, written})
}

// push fills the used ring and interrupts the driver. The caller holds mu.
func (q *Queue) push(elems ...usedElem) error {
	err := guarded(func() error {
		for _, e := range elems {
			q.ring.Push(e.head, e.written)
		}
		if q.ring.publish() {
			q.signal()
		}
		return nil
	})
	if err != nil {
		q.running = false
		return fmt.Errorf("queue %d: %w", q.index, err)
	}
	return nil
}

// drain waits for chains that were taken, no longer than drainWait. The caller
// holds mu, which is released meanwhile.
func (q *Queue) drain() {
	if q.lent.chains == 0 {
		return
	}
	drained := make(chan struct{})
	q.lent.drained = drained
	q.mu.Unlock()
	timer := time.NewTimer(drainWait)
	select {
	case <-drained:
	case <-timer.C:
	}
	timer.Stop()
	q.mu.Lock()
	q.lent.drained = nil
}

// restart gives the driver what came back while the queue was stopped, unless
// it has set the queue up anew. The caller holds mu.
func (q *Queue) restart(fresh bool) error {
	late := q.lent.late
	q.lent.late = nil
	if fresh {
		q.lent.epoch++
		return nil
	}
	if len(late) == 0 {
		return nil
	}
	return q.push(late...)
}

// Guard calls f, which touches the memory of a chain that was taken. The error
// wraps ErrBroken if a page of it was not there; then f did not come to its end.
func Guard(f func() error) error { return guarded(f) }
