package passthrough

import (
	"time"

	"golang.org/x/sys/unix"
)

// A file that the host deletes keeps its blocks while a descriptor of it is open,
// and a guest remembers the files that it has had open as long as it has memory. So
// the idle descriptors are inspected from time to time, and those of deleted files
// are closed: what the guest still has open, it has by a handle. The descriptors of
// files that have a name stay open. They keep the host's file system from giving the
// inode's number to another file.

const (
	// sweepSoon is the time between two sweeps while the guest uses files. It doubles
	// while it does not, up to sweepLate: an idle pod is not to wake the host often.
	sweepSoon = 2 * time.Second
	sweepLate = 30 * time.Second
	// sweepEach is the least of that time for each descriptor that was left open: some
	// fifty times what its inspection takes.
	sweepEach = 100 * time.Microsecond
	// sweepBatch is how many descriptors are inspected between two uses of table.mu.
	sweepBatch = 256
)

// sweeper closes the descriptors of files that the host has deleted. table.mu guards
// it.
type sweeper struct {
	timer   *time.Timer
	armed   bool
	running bool
	closed  bool
	// pause is the time until the next sweep, while armed.
	pause time.Duration
	used  bool // a descriptor has become idle since the last sweep began
	left  int  // how many descriptors the last sweep left open
}

// soon returns the time between two sweeps while the guest uses files.
func (s *sweeper) soon() time.Duration {
	return min(max(sweepSoon, time.Duration(s.left)*sweepEach), sweepLate)
}

// stop ends it permanently. The caller holds mu.
func (s *sweeper) stop() {
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// idled schedules a sweep: a descriptor has become idle. The caller holds mu.
func (tb *table) idled() {
	s := &tb.sweeper
	s.used = true
	if soon := s.soon(); !s.running && (!s.armed || s.pause > soon) {
		tb.sweepAfter(soon)
	}
}

// sweepAfter schedules the next sweep. The caller holds mu.
func (tb *table) sweepAfter(pause time.Duration) {
	s := &tb.sweeper
	if s.closed {
		return
	}
	s.armed, s.pause = true, pause
	if s.timer == nil {
		s.timer = time.AfterFunc(pause, tb.sweep)
		return
	}
	s.timer.Reset(pause)
}

// sweep closes what was deleted, and schedules the next sweep if other idle
// descriptors are left.
func (tb *table) sweep() {
	tb.mu.Lock()
	tb.sweeper.running, tb.sweeper.used = true, false
	tb.mu.Unlock()
	batch := make([]idleFile, 0, sweepBatch)
	left := 0
	for from := 0; from >= 0; {
		batch, from = tb.idleFiles(batch[:0], from)
		gone := deletedOf(batch)
		left += len(batch) - len(gone)
		tb.closeDeleted(gone)
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	s := &tb.sweeper
	s.running, s.left = false, left
	switch {
	case s.used:
		tb.sweepAfter(s.soon())
	case left > 0:
		tb.sweepAfter(min(max(2*s.pause, s.soon()), sweepLate))
	default:
		s.armed = false
	}
}

// idleFile is a regular file whose descriptor is not in use.
type idleFile struct {
	slot int
	node *node
	fd   int
}

// idleFiles appends a batch of the idle files in the slots from "from" on, and returns
// the slot to continue with, or -1.
func (tb *table) idleFiles(batch []idleFile, from int) ([]idleFile, int) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	all := tb.slots.all
	for i := from; i < len(all); i++ {
		if len(batch) == cap(batch) {
			return batch, i
		}
		if all[i].sweepable() {
			batch = append(batch, idleFile{slot: i, node: all[i].node, fd: all[i].fd})
		}
	}
	return batch, -1
}

// sweepable reports whether the host may have deleted the slot's file without the
// guest's knowledge. The guest may have removed the name that is known: the file had
// another one then, or its descriptor would be pinned. The caller holds table.mu.
func (sl *slot) sweepable() bool {
	n := sl.node
	return n != nil && sl.uses == 0 && !sl.pinned && n.kind == unix.S_IFREG
}

// deletedOf returns those that no longer have a name on the host. Another thread may
// close a descriptor meanwhile, and its number may become another file's: that is
// not the node's.
func deletedOf(files []idleFile) []idleFile {
	gone := files[:0]
	for _, f := range files {
		var stx unix.Statx_t
		// A network's file system is not to ask its server.
		err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, statMask, &stx)
		if err == nil && stx.Nlink == 0 && f.node.is(&stx) {
			gone = append(gone, f)
		}
	}
	return gone
}

// closeDeleted closes the descriptors that are still idle. The nodes have no name
// any more, and the host may give their inodes' numbers to other files.
func (tb *table) closeDeleted(files []idleFile) {
	if len(files) == 0 {
		return
	}
	var fds []int
	tb.mu.Lock()
	for _, f := range files {
		if f.slot >= len(tb.slots.all) {
			break // closed
		}
		if sl := &tb.slots.all[f.slot]; sl.node != f.node || sl.fd != f.fd || !sl.sweepable() {
			continue
		}
		fds = append(fds, tb.slots.remove(f.node))
		f.node.name = ""
		if tb.byKey[f.node.key] == f.node {
			delete(tb.byKey, f.node.key)
		}
	}
	tb.mu.Unlock()
	closeAll(fds)
}
