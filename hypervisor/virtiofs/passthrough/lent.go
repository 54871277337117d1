package passthrough

import (
	"time"

	"golang.org/x/sys/unix"
)

// A mount inside a volume is the host's, which may unmount it at any time: a
// storage driver that mounts anew, for a volume with the propagation rslave. The
// kernel refuses that while a descriptor is open on any copy of the mount
// (fs/pnode.c, propagate_mount_busy), and a guest keeps what it has looked at
// known for as long as it has memory. Such a tree is lent: its descriptors are
// closed shortly after their last use, and its files are found by their names
// again. What the guest has open, and what has no name any more, stays open, as it
// would with a process of the host's.
//
// A file so found is known by the number of its mount, its device and inode. The
// kernel gives a mount's number to no other one since Linux 6.8; before, a new
// mount in the same place whose root has the same device and inode is taken for
// the old one.

// lendTime is how long a descriptor of a lent tree stays open unused: up to twice
// this. A guest that goes through a tree opens each directory once; one that looks
// every second is no obstacle to the host.
const lendTime = 100 * time.Millisecond

// lentEntries bounds how long the guest takes the place of a lent mount for the
// same without asking, whatever the tree around it has.
const lentEntries = time.Second

// lender closes the descriptors of lent trees. table.mu guards it.
type lender struct {
	timer  *time.Timer
	armed  bool
	closed bool
}

// lends reports whether mounts in a tree are lent. Those in the share itself are
// made for it, and dropped before they go (FS.Drop).
func (t *tree) lends() bool { return t.id != shareTree }

// rest ends a use of a node's slot and gives a descriptor to close, or -1. The
// caller holds mu.
func (tb *table) rest(n *node) int {
	fd := tb.slots.done(n)
	tb.lend()
	return fd
}

// lend sees that idle descriptors of lent trees are closed in time. The caller
// holds mu.
func (tb *table) lend() {
	l := &tb.lender
	if l.armed || l.closed || tb.slots.lent.head < 0 {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(lendTime, tb.recall)
		return
	}
	l.timer.Reset(lendTime)
}

// recall closes what was idle for long enough, and comes again if there is more.
func (tb *table) recall() {
	tb.mu.Lock()
	fds := tb.slots.recall(nil)
	tb.lender.armed = false
	tb.lend()
	tb.mu.Unlock()
	closeAll(fds)
}

// recall takes away the lent slots that were idle in the last round already.
func (s *slots) recall(fds []int) []int {
	for s.lent.head >= 0 && s.all[s.lent.head].round != s.round {
		fds = append(fds, s.remove(s.all[s.lent.head].node))
	}
	s.round++
	return fds
}

// stop ends it for good. The caller holds mu.
func (l *lender) stop() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// renamed says where a node is now, and gives descriptors to close. One in a lent
// tree that has a name again needs no descriptor any more. The caller holds mu.
func (tb *table) renamed(n, parent *node, name string) []int {
	fds := tb.collect(n.move(parent, name), nil)
	if n.tree.lent && n.slot >= 0 {
		tb.slots.unpin(n)
		tb.lend()
	}
	return fds
}

// unpin ends pin.
func (s *slots) unpin(n *node) {
	sl := &s.all[n.slot]
	if !sl.pinned {
		return
	}
	sl.pinned = false
	s.pinned--
	if sl.uses == 0 {
		s.append(n.slot)
	}
}

// reused reports whether a mount that was found in a place is another one than
// the tree that had its number. The caller holds table.mu.
func (tb *table) reused(t *tree, where string, root *unix.Statx_t) bool {
	return t.lent && !tb.uniqueMounts && (t.path != where || t.rootIno != root.Ino || t.rootDev != devOf(root))
}
