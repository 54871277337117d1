package vhostuser

import (
	"errors"
	"fmt"
	"sync"
)

// maxQueueSize bounds the size that a front end may request. QEMU gives a
// virtio-vsock queue 128 entries; 1024 is the most it gives any device.
const maxQueueSize = 1024

var (
	// ErrStopped means that the queue is not running: the driver has not
	// set it up yet, reset it, or the machine is paused or gone.
	ErrStopped = errors.New("virtqueue is not running")
	// ErrBroken means that the driver's ring is malformed. The queue is
	// unusable until the driver resets it.
	ErrBroken = errors.New("virtqueue is broken")
)

// Queue is one split virtqueue (virtio 1.2, section 2.7). A device makes its
// queues before it is served and keeps them for its whole life.
type Queue struct {
	index int

	// mu guards everything below, and the guest memory that the queue points
	// into: it must be held to replace the memory table. It is held during Do.
	mu      sync.Mutex
	running bool
	mem     *memory
	size    uint16
	addr    vringAddr
	ring    Ring
	call    call
	lent    lent
}

// NewQueue makes the queue with the given index of its device, stopped.
func NewQueue(index int) *Queue {
	return &Queue{index: index, call: call{fd: -1}}
}

// Index is the queue's number within its device.
func (q *Queue) Index() int { return q.index }

// Size is the number of the ring's entries that the driver has chosen.
func (q *Queue) Size() int {
	q.lock()
	defer q.mu.Unlock()
	return int(q.size)
}

// Running reports whether Do would call its function now.
func (q *Queue) Running() bool {
	q.lock()
	defer q.mu.Unlock()
	return q.running
}

// Do calls f with the queue's ring, one caller at a time, and interrupts the
// driver if f pushed anything. It blocks only on other callers. f must not wait
// for the guest, nor call Do of this queue. The error is ErrStopped if f was
// not called, and wraps ErrBroken if f found the ring malformed, or touched
// missing guest memory: then the queue has stopped. In the latter case f did
// not complete, so it must unlock what it locks by defer. Otherwise the error
// is f's.
func (q *Queue) Do(f func(r *Ring) error) error {
	q.lock()
	defer q.mu.Unlock()
	if !q.running {
		return ErrStopped
	}
	err := guarded(func() error {
		err := f(&q.ring)
		if q.ring.publish() {
			q.call.signal()
		}
		return err
	})
	if errors.Is(err, ErrBroken) {
		q.running = false
		err = fmt.Errorf("queue %d: %w", q.index, err)
	}
	return err
}

// start makes the queue run. The ring begins at base, the next available entry.
func (q *Queue) start(base uint16) error {
	q.lock()
	defer q.mu.Unlock()
	if err := q.locate(); err != nil {
		return err
	}
	q.ring.lastAvail = base
	err := guarded(func() error { q.ring.published = q.mem.usedIndex(q.ring.used); return nil })
	if err != nil {
		return fmt.Errorf("queue %d: %w", q.index, err)
	}
	q.ring.pushed = q.ring.pushed[:0]
	q.running = true
	// Both indexes are 0 after a driver's reset. Otherwise an index of 0 is the 65536th
	// chain's, and as long as chains are taken or late, the used one is behind it.
	return q.restart(base == 0 && q.ring.published == 0)
}

// locate finds the ring in the current memory table. The caller holds mu. On an
// error the queue does not run, because its old ring may be gone.
func (q *Queue) locate() error {
	r, err := q.find()
	if err != nil {
		q.running = false
		return err
	}
	r.lastAvail, r.published, r.pushed = q.ring.lastAvail, q.ring.published, q.ring.pushed
	q.ring = r
	return nil
}

// find makes a ring without its positions. The caller holds mu.
func (q *Queue) find() (Ring, error) {
	n := uint64(q.size)
	if n == 0 || q.mem == nil {
		return Ring{}, fmt.Errorf("queue %d has no size or memory: %w", q.index, errMalformed)
	}
	r := Ring{mem: q.mem, size: q.size}
	// The sizes are those of virtio 1.2, section 2.7, without the event
	// indexes. Words of both rings are accessed as a whole, so they must be
	// aligned (available: 2 bytes by the standard, but 8 in every driver that
	// puts it behind the descriptors).
	var found [3]bool
	r.desc, found[0] = q.mem.user(q.addr.desc, descLen*n)
	r.avail, found[1] = q.mem.user(q.addr.avail, ringHead+headLen*n)
	r.used, found[2] = q.mem.user(q.addr.used, ringHead+elemLen*n)
	if found != [3]bool{true, true, true} || !q.mem.aligned(r.avail) || !q.mem.aligned(r.used) {
		return Ring{}, fmt.Errorf("queue %d at %+v is not in memory: %w", q.index, q.addr, errMalformed)
	}
	return r, nil
}

// stop makes Do and Take fail, waits for a running call and, at most drainWait,
// for taken chains. It returns the next available entry, for a later start.
func (q *Queue) stop() uint16 {
	q.lock()
	defer q.mu.Unlock()
	if q.running {
		q.running = false
		q.drain()
	}
	return q.ring.lastAvail
}

func (q *Queue) setSize(n uint32) error {
	if n == 0 || n > maxQueueSize || n&(n-1) != 0 {
		return fmt.Errorf("queue of %d entries: %w", n, errMalformed)
	}
	q.lock()
	defer q.mu.Unlock()
	if q.running {
		return fmt.Errorf("resize of running queue %d: %w", q.index, errMalformed)
	}
	q.size = uint16(n)
	return nil
}

func (q *Queue) setAddr(a vringAddr) error {
	q.lock()
	defer q.mu.Unlock()
	q.addr = a
	if !q.running {
		return nil
	}
	return q.locate()
}

// setMemory moves the queue to another memory table, nil for none; afterwards
// the queue no longer uses the old one.
func (q *Queue) setMemory(m *memory) error {
	q.lock()
	defer q.mu.Unlock()
	q.mem = m
	if m == nil {
		q.running = false
		q.ring = Ring{lastAvail: q.ring.lastAvail}
		return nil
	}
	if !q.running {
		return nil
	}
	return q.locate()
}

// setCall replaces the descriptor that interrupts the driver, -1 for none, and
// signals it once, because an interrupt for the old one may have been lost.
func (q *Queue) setCall(fd int) {
	q.lock()
	defer q.mu.Unlock()
	q.call.set(fd)
	if q.running {
		q.call.signal()
	}
}
