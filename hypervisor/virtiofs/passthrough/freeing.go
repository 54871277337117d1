package passthrough

import (
	"time"

	"golang.org/x/sys/unix"
)

// A file that the guest has removed keeps its blocks until its descriptor is closed
// here, and that is after the guest's forget, which the guest sends once the removal
// has succeeded. A guest that removes a file to make room, and writes at once, may be
// faster: without a wait it would find the disk full.

const (
	// freeingTime is how long after a removal a request without room waits for the
	// forget. What is not forgotten by then is open, or in use in another way.
	freeingTime = 500 * time.Millisecond
	freeingStep = time.Millisecond
)

// freeing is what is known of removed files whose blocks may soon be free. table.mu
// guards it.
type freeing struct {
	// since has the removed files that the guest has not forgotten, with the time of
	// the removal, or of a later release.
	since map[*node]time.Time
	// closing counts the threads that close descriptors of forgotten nodes.
	closing int
	// last is the time of the last removal or release of a removed file.
	last time.Time
}

// removed records that a file has lost its last name, or is used less. The caller
// holds mu.
func (f *freeing) removed(n *node) {
	if f.since == nil {
		f.since = map[*node]time.Time{}
	}
	f.last = time.Now()
	f.since[n] = f.last
}

// pending reports whether blocks may be free soon. The caller holds mu.
func (f *freeing) pending(now time.Time) bool {
	if f.closing > 0 {
		return true
	}
	for _, at := range f.since {
		if now.Sub(at) < freeingTime {
			return true
		}
	}
	return false
}

// putReleased is put for a node of which a handle was closed.
func (tb *table) putReleased(n *node) {
	tb.mu.Lock()
	if _, ok := tb.freeing.since[n]; ok {
		tb.freeing.removed(n)
	}
	n.refs--
	tb.unlockAndClose(tb.collect(n, nil))
}

// unlockAndClose unlocks mu and closes descriptors of forgotten nodes.
func (tb *table) unlockAndClose(fds []int) {
	if len(fds) == 0 {
		tb.mu.Unlock()
		return
	}
	tb.freeing.closing++
	tb.mu.Unlock()
	closeAll(fds)
	tb.mu.Lock()
	tb.freeing.closing--
	tb.mu.Unlock()
}

// awaitFreed waits until files that were removed just now have freed their blocks. It
// reports whether there were any, so that a request without room is worth another
// try.
func (tb *table) awaitFreed() bool {
	begin := time.Now()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if f := &tb.freeing; f.closing == 0 && begin.Sub(f.last) >= 2*freeingTime {
		return false
	}
	for tb.freeing.pending(time.Now()) && time.Since(begin) < freeingTime {
		tb.mu.Unlock()
		time.Sleep(freeingStep)
		tb.mu.Lock()
	}
	return true
}

// full reports whether a request failed because the file system, or the user's share
// of it, has no room.
func full(errno unix.Errno) bool { return errno == unix.ENOSPC || errno == unix.EDQUOT }
