package passthrough

import (
	"sync"

	"golang.org/x/sys/unix"
)

// rootID is the number of the share's root (fuse.h, FUSE_ROOT_ID).
const rootID = 1

// maxNodes bounds what a guest may know at once: some 400 MB here, for which
// it needs ten times as much memory itself.
const maxNodes = 2 << 20

// key is what makes a file the same file.
type key struct {
	ino  uint64
	tree uint32
	dev  uint32 // of the file; overlayfs has several in one mount
}

// node is a file that the guest knows. table.mu guards all but id, key, tree
// and kind, which do not change.
type node struct {
	key  key
	tree *tree
	id   uint64
	// parent and name are where the file was seen last; no parent is the
	// share's root, and no name a file that has none any more.
	parent *node
	name   string
	// lookups is how often the guest was given the number, less what it has
	// forgotten. refs are its children, and uses on the way (hold).
	lookups uint64
	refs    int32
	slot    int32 // the descriptor's, -1 for none
	kind    uint32
}

// isDir reports whether the node is a directory.
func (n *node) isDir() bool { return n.kind == unix.S_IFDIR }

// table is all nodes.
type table struct {
	// mu guards the table, its nodes and its slots.
	mu    sync.Mutex
	byID  []*node // number-1 is the index
	free  []uint32
	byKey map[key]*node
	slots slots
	// most is how many nodes there were since the table was last made smaller.
	most int
	// trees are those that are not dead, by their mounts' numbers. While a
	// tree has nodes, the number is not used again: if the kernel may do that, its
	// root's descriptor prevents it, but for lent ones (lent.go).
	trees        map[uint64]*tree
	lastTree     uint32
	uniqueMounts bool // the kernel uses no number again
	lender       lender
}

// get finds a node by the guest's number and holds it. ESTALE if it is not
// there, or its tree is gone.
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

// put ends what get began.
func (tb *table) put(n *node) {
	tb.mu.Lock()
	n.refs--
	fds := tb.collect(n, nil)
	tb.mu.Unlock()
	closeAll(fds)
}

// add makes a node below parent. The caller holds mu.
func (tb *table) add(k key, t *tree, parent *node, name string, kind uint32) *node {
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

// move says where a node is now. The caller holds mu, and collects the parent
// that it had.
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

// forget takes back n of the lookups of a node.
func (tb *table) forget(id, count uint64) {
	tb.mu.Lock()
	var fds []int
	if id > rootID && id <= uint64(len(tb.byID)) && tb.byID[id-1] != nil {
		n := tb.byID[id-1]
		n.lookups -= min(count, n.lookups)
		fds = tb.collect(n, fds)
	}
	thinned := tb.thin()
	tb.mu.Unlock()
	closeAll(fds)
	if thinned {
		releaseMemory()
	}
}

// collect removes a node that nobody knows or uses any more, then its parent,
// and so on. It gives the descriptors to close. The caller holds mu.
func (tb *table) collect(n *node, fds []int) []int {
	for n != nil && n.id != rootID && n.lookups == 0 && n.refs == 0 {
		if n.slot >= 0 {
			fds = append(fds, tb.slots.remove(n))
		}
		if tb.byKey[n.key] == n {
			delete(tb.byKey, n.key)
		}
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

// forgetAll is for a guest that begins anew.
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
