package passthrough

import (
	"iter"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// rootID is the number of the share's root (fuse.h, FUSE_ROOT_ID).
const rootID = 1

// maxNodes bounds the nodes that a guest may know: they take some 400 MB here,
// for which the guest itself needs ten times as much memory.
const maxNodes = 2 << 20

// key identifies a file.
type key struct {
	ino  uint64
	tree uint32
	dev  uint32 // the file's device; overlayfs has several in one mount
}

// node is a file that the guest knows. id, key, tree, kind and device are immutable,
// except that a loaded one gets its key, tree and device when it is found (load.go);
// table.mu guards the rest, apart from stamp.
type node struct {
	key  key
	tree *tree
	id   uint64
	// parent and name are where the file was last seen; the share's root has no
	// parent, and a file that has lost its name has an empty one.
	parent *node
	name   string
	// lookups is how often the guest was given the number, minus its forgets.
	// refs counts its children, and uses in progress (hold).
	lookups uint64
	refs    int32
	slot    int32         // index of its descriptor's slot, -1 for none
	stamp   atomic.Uint32 // stampOf
	kind    uint16        // a mode's
	device  uint16        // table.device
}

// isDir reports whether the node is a directory.
func (n *node) isDir() bool { return n.kind == unix.S_IFDIR }

// table has all nodes.
type table struct {
	// mu guards the table, its nodes and its slots.
	mu    sync.Mutex
	byID  []*node // number-1 is the index
	free  []uint32
	byKey map[key]*node
	slots slots
	// most is the greatest number of nodes since the table was last shrunk.
	most int
	// trees has the trees that are not dead, by their mounts' numbers. While a
	// tree has nodes its number is not reused: if the kernel might do that, its
	// root's descriptor prevents it, except for lent ones (lent.go).
	trees        map[uint64]*tree
	lastTree     uint32
	savedDevices uint16 // the most of a node's that was loaded
	uniqueMounts bool   // the kernel never reuses a number
	lender       lender
	sweeper      sweeper
	freeing      freeing
}

// get finds a node by the guest's number and holds it. It returns ESTALE if
// there is none, or its tree is gone.
func (tb *table) get(id uint64) (*node, unix.Errno) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if id == 0 || id > uint64(len(tb.byID)) || tb.byID[id-1] == nil {
		return nil, unix.ESTALE
	}
	n := tb.byID[id-1]
	if n.tree.dead {
		return nil, unix.ESTALE
	}
	n.refs++
	return n, 0
}

// put undoes get.
func (tb *table) put(n *node) {
	tb.mu.Lock()
	n.refs--
	tb.unlockAndClose(tb.collect(n, nil))
}

// placeOf returns where a node was last seen.
func (tb *table) placeOf(n *node) (at namedPlace) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if n.parent != nil {
		at = namedPlace{n.parent.key, n.name}
	}
	return at
}

// upwards returns a node, unless it is gone, and the directories above it in its tree.
// Each is held while the loop's body has it.
func (tb *table) upwards(id uint64) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		n, _ := tb.get(id)
		for depth := 0; n != nil; depth++ {
			var above *node
			if yield(n) && depth < maxDepth {
				above = tb.above(n)
			}
			tb.put(n)
			n = above
		}
	}
}

// above returns the directory of a node, held, or nil if it is in another tree.
func (tb *table) above(n *node) *node {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if n.parent == nil || n.parent.tree != n.tree {
		return nil
	}
	n.parent.refs++
	return n.parent
}

// add makes a node below parent. The caller holds mu.
func (tb *table) add(k key, t *tree, parent *node, name string, kind uint16) *node {
	n := &node{key: k, tree: t, parent: parent, name: name, slot: -1, kind: kind}
	if last := len(tb.free) - 1; last >= 0 {
		n.id = uint64(tb.free[last]) + 1
		tb.free = tb.free[:last]
		tb.byID[n.id-1] = n
	} else {
		tb.byID = append(tb.byID, n)
		n.id = uint64(len(tb.byID))
	}
	tb.byKey[k] = n
	tb.most = max(tb.most, tb.live())
	if parent != nil {
		parent.refs++
	}
	t.nodes++
	return n
}

// move records where a node is now. The caller holds mu, and collects the old
// parent.
func (n *node) move(parent *node, name string) (old *node) {
	if n.parent == parent {
		n.name = name
		return nil
	}
	old = n.parent
	n.parent, n.name = parent, name
	if parent != nil {
		parent.refs++
	}
	if old != nil {
		old.refs--
	}
	return old
}

// forget subtracts count from the lookups of a node.
func (tb *table) forget(id, count uint64) {
	tb.mu.Lock()
	var fds []int
	if id > rootID && id <= uint64(len(tb.byID)) && tb.byID[id-1] != nil {
		n := tb.byID[id-1]
		n.lookups -= min(count, n.lookups)
		fds = tb.collect(n, fds)
	}
	thinned := tb.thin()
	tb.unlockAndClose(fds)
	if thinned {
		releaseMemory()
	}
}

// collect removes a node that is neither known nor used any more, then its
// parent, and so on. It returns the descriptors to close. The caller holds mu.
func (tb *table) collect(n *node, fds []int) []int {
	for n != nil && n.id != rootID && n.lookups == 0 && n.refs == 0 {
		if n.slot >= 0 {
			fds = append(fds, tb.slots.remove(n))
		}
		if tb.byKey[n.key] == n {
			delete(tb.byKey, n.key)
		}
		delete(tb.freeing.since, n)
		tb.byID[n.id-1] = nil
		tb.free = append(tb.free, uint32(n.id-1))
		if n.tree.nodes--; n.tree.nodes == 0 && tb.trees[n.tree.mount] == n.tree {
			delete(tb.trees, n.tree.mount)
		}
		parent := n.parent
		if parent != nil {
			parent.refs--
		}
		n = parent
	}
	return fds
}

// mayPin is slots.mayPin. It locks mu.
func (tb *table) mayPin() bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.slots.mayPin()
}

// forgetAll is for a guest that starts a new session.
func (tb *table) forgetAll() {
	tb.mu.Lock()
	var fds []int
	for _, n := range tb.byID {
		if n != nil && n.id != rootID {
			n.lookups = 0
			fds = tb.collect(n, fds)
		}
	}
	thinned := tb.thin()
	tb.mu.Unlock()
	closeAll(fds)
	if thinned {
		releaseMemory()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
