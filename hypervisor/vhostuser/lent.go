package vhostuser

import (
	"errors"
	"fmt"
	"time"
)

// drainWait bounds how long stopping a queue waits for chains that a device has
// taken: they may wait for a hung file system.
const drainWait = 2 * time.Second

// lent is a queue's state of the chains that its device has taken. The queue's
// mu guards it.
type lent struct {
	chains int
	// epoch counts how often the driver has set up the queue. Chains from an
	// earlier epoch are dropped on return, because the driver has forgotten
	// them.
	epoch uint64
	// drained is closed when the last chain has been returned; it is set while
	// stop waits for that, when returned chains still go to the ring.
	drained chan struct{}
	// late are chains that were returned while the queue was stopped.
	late []usedElem
}

// Take takes the next available chain into c, which is reused, and keeps the
// memory behind it mapped until Return, which must follow. ok is false if there
// is none; more reports whether there is another one. Unlike in Do, the caller
// may keep the chain for any time. It must handle faults when it touches its
// memory: a page may be missing (Guard). Errors are as from Do.
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

// Return returns a taken chain to the driver, with the number of bytes written
// to its In, and interrupts it. If the queue has stopped meanwhile, the driver
// gets the chain when the queue resumes, or never if it is reset.
func (q *Queue) Return(c *Chain, written uint32) error {
	q.lock()
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

// giveBack does Return's work. The caller holds mu.
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
			q.call.signal()
		}
		return nil
	})
	if err != nil {
		q.running = false
		return fmt.Errorf("queue %d: %w", q.index, err)
	}
	return nil
}

// drain waits for taken chains, at most drainWait. The caller holds mu, which
// is released meanwhile.
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
	q.lock()
	q.lent.drained = nil
}

// restart gives the driver what was returned while the queue was stopped,
// unless it has set up the queue again. The caller holds mu.
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

// Guard calls f, which touches the memory of a taken chain. The error wraps
// ErrBroken if a page of it was missing; then f did not complete.
func Guard(f func() error) error { return guarded(f) }

// Settled returns an error if chains are still taken, or were returned after the
// queue had stopped. The guest's memory does not have their results, or may get them
// at any time: it cannot be saved, not for another process that continues the queue
// either, which would never give them.
func (q *Queue) Settled() error {
	q.lock()
	defer q.mu.Unlock()
	if taken, late := q.lent.chains, len(q.lent.late); taken+late > 0 {
		return fmt.Errorf("queue %d: %d requests are being served, %d were completed too late", q.index, taken, late)
	}
	return nil
}
