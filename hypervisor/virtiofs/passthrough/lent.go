package passthrough

import (
	"time"

	"golang.org/x/sys/unix"
)

// The host may unmount a mount inside a volume at any time: for example a
// storage driver that remounts, for a volume with rslave propagation. The
// kernel refuses that while a descriptor is open on any copy of the mount
// (fs/pnode.c, propagate_mount_busy), and a guest remembers what it has looked
// up as long as it has memory. Such a tree is lent: its descriptors are closed
// shortly after their last use, and its files are found again by their names.
// What the guest has open, and what no longer has a name, stays open, as it
// would with a process on the host.
//
// Such a file is identified by its mount's number, its device and inode. Since
// Linux 6.8 the kernel does not reuse a mount's number; before, a new mount in
// the same place whose root has the same device and inode is taken for the old
// one.

// lendTime is how long an unused descriptor of a lent tree stays open: up to
// twice this. A guest that walks a tree opens each directory once; one that
// looks every second does not hinder the host.
const lendTime = 100 * time.Millisecond

// lentEntries bounds how long the guest may cache the mount point of a lent
// mount, whatever the policy of the tree around it.
const lentEntries = time.Second

// lender closes the descriptors of lent trees. table.mu guards it.
type lender struct {
	timer  *time.Timer
	armed  bool
	closed bool
}

// lends reports whether mounts in a tree are lent. Those in the share itself
// are made for it, and dropped before they are removed (FS.Drop).
func (t *tree) lends() bool { return t.id != shareTree }

// rest ends a use of a node's slot and returns a descriptor to close, or -1.
// The caller holds mu.
func (tb *table) rest(n *node) int {
	fd := tb.slots.done(n)
	tb.lend()
	tb.idled()
	return fd
}

// lend schedules closing the idle descriptors of lent trees. The caller holds
// mu.
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

// recall closes what was idle for long enough, and schedules another round if
// there is more.
func (tb *table) recall() {
	tb.mu.Lock()
	fds := tb.slots.recall(nil)
	tb.lender.armed = false
	tb.lend()
	tb.mu.Unlock()
	closeAll(fds)
}

// recall removes the lent slots that were already idle in the last round.
func (s *slots) recall(fds []int) []int {
	for s.lent.head >= 0 && s.all[s.lent.head].round != s.round {
		fds = append(fds, s.remove(s.all[s.lent.head].node))
	}
	s.round++
	return fds
}

// stop ends it permanently. The caller holds mu.
func (l *lender) stop() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// renamed records where a node is now, and returns descriptors to close. A node
// that has a name again no longer needs a descriptor, unless it is the root of a
// mount that is not lent (inspect). The caller holds mu.
func (tb *table) renamed(n, parent *node, name string) []int {
	fds := tb.collect(n.move(parent, name), nil)
	isRoot := n.tree != parent.tree && !n.tree.lent
	if n.slot >= 0 && name != "" && !isRoot {
		tb.slots.unpin(n)
		tb.lend()
		fds = tb.slots.trim(fds)
	}
	return fds
}

// unpin undoes pin.
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

// reused reports whether a mount found at a path is not the tree that had its
// number, that is whether the number was reused. The caller holds table.mu.
func (tb *table) reused(t *tree, where string, root *unix.Statx_t) bool {
	return t.lent && !tb.uniqueMounts && (t.path != where || t.rootIno != root.Ino || t.rootDev != devOf(root))
}
