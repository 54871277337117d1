package vhostuser

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The front end shares the eventfds' open file descriptions: it can make them blocking
// at any time, and then a write to one whose counter is full blocks. Only a hostile front
// end does that. The writer would block with the queue's lock held. Eventfds have no
// RWF_NOWAIT, so no write to one is sure not to block. Therefore a goroutine that waits
// for the lock ends such a write: it empties the counter. Kicks are never read (vring.loop).

const (
	// stuckTime is how long a waiter for a queue's lock gives the holder.
	stuckTime = time.Second
	// stuckAgain is when it is tried again: the front end may fill the counter
	// at once.
	stuckAgain = 50 * time.Millisecond
)

// call interrupts the driver. The queue's mu guards it, but for unblock.
type call struct {
	writing atomic.Bool
	// mute is set when a write had to be ended; then nothing is written.
	mute atomic.Bool
	// mu must be held, too, to change fd, which is -1 for none.
	mu sync.Mutex
	fd int
}

// signal interrupts the driver. If the eventfd's counter is full, an interrupt
// is pending anyway.
func (c *call) signal() {
	if c.fd < 0 || c.mute.Load() {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	c.writing.Store(true)
	_, _ = unix.Write(c.fd, one[:])
	c.writing.Store(false)
}

// set replaces the descriptor.
func (c *call) set(fd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.fd = fd
	c.mute.Store(false)
}

// unblock ends a write that waits, if there is one, and those to come.
func (c *call) unblock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 || !c.writing.Load() {
		return
	}
	if isFull(c.fd) {
		c.mute.Store(true)
		// This wakes the writer. With the flag it waits in no case (Linux 5.8).
		_, _ = unix.Preadv2(c.fd, [][]byte{make([]byte, 8)}, -1, unix.RWF_NOWAIT)
	}
	time.AfterFunc(stuckAgain, c.unblock)
}

// isFull reports whether a write of one to an eventfd would wait.
func isFull(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	_, err := unix.Ppoll(p, &unix.Timespec{}, nil)
	return err == nil && p[0].Revents&unix.POLLOUT == 0
}

// lock locks mu.
func (q *Queue) lock() {
	if q.mu.TryLock() {
		return
	}
	timer := time.AfterFunc(stuckTime, q.call.unblock)
	q.mu.Lock()
	timer.Stop()
}

// checkEventfd refuses other files: what can be done with one without waiting
// depends on its kind.
func checkEventfd(fd int) error {
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("inspect descriptor: %w", err)
	}
	if kind != "anon_inode:[eventfd]" {
		return fmt.Errorf("the descriptor is no eventfd: %w", errMalformed)
	}
	return nil
}

// takeEventfd checks a descriptor that the front end has sent, and closes it on
// an error. What does not change the mode back never waits.
func takeEventfd(fd int) error {
	err := checkEventfd(fd)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
	}
	return err
}
