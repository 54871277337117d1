package passthrough

import (
	"path"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Policy is how much of a tree the guest may keep without asking again.
type Policy struct {
	// Entries and Attributes are for how long names and attributes hold.
	Entries, Attributes time.Duration
	// Absent is for how long a name that is not there holds as absent.
	Absent time.Duration
	// Keep keeps a file's pages, and a directory's entries, from one open to
	// the next. Direct has none kept at all.
	Keep, Direct bool
	// Quiet has a close of a file not ask whether its data arrived: every
	// write was answered, and a local file system has no more to say.
	Quiet bool
}

// forever is long enough for what nobody but the guest changes.
const forever = 24 * time.Hour

// Policies, by Kata's virtio_fs_cache, and Exclusive for a tree that only its
// guest changes.
var (
	Never     = Policy{Direct: true}
	Metadata  = Policy{Entries: time.Second, Attributes: time.Second, Direct: true}
	Auto      = Policy{Entries: time.Second, Attributes: time.Second}
	Always    = Policy{Entries: forever, Attributes: forever, Keep: true}
	Exclusive = Policy{Entries: forever, Attributes: forever, Absent: forever, Keep: true, Quiet: true}
)

// shareTree is the number of the share's own tree.
const shareTree = 0

// tree is one mount of the share.
type tree struct {
	id     uint32
	mount  uint64
	path   string // of its root, relative to the share's
	policy Policy
	// lent is set if the host may unmount it; then its root is told apart by
	// these (lent.go).
	lent    bool
	rootIno uint64
	rootDev uint32
	// rename is held for reading while a file is found by its name again after
	// that failed, and for writing while names change places.
	rename sync.RWMutex

	// table.mu guards the following.
	nodes int
	dead  bool
}

// openFlags are what an open's reply says of caching.
func (t *tree) openFlags(dir bool, flags uint32) uint32 {
	var out uint32
	switch {
	case t.policy.Direct && !dir:
		out |= fuse.FOPEN_DIRECT_IO
	case t.policy.Keep:
		out |= fuse.FOPEN_KEEP_CACHE
		if dir {
			out |= fuse.FOPEN_CACHE_DIR
		}
	}
	if !dir && (t.policy.Quiet || flags&unix.O_ACCMODE == unix.O_RDONLY) {
		out |= fuse.FOPEN_NOFLUSH
	}
	return out
}

// treeBelow is the tree that a file below parent is in: the parent's, unless
// something is mounted there. The caller holds table.mu.
func (fs *FS) treeBelow(parent *node, name string, stx *unix.Statx_t) *tree {
	if parent.tree.mount == stx.Mnt_id {
		return parent.tree
	}
	tb := &fs.nodes
	where := path.Join(pathOf(parent), name)
	if t := tb.trees[stx.Mnt_id]; t != nil {
		if !tb.reused(t, where, stx) {
			return t
		}
		t.dead = true // and has no descriptors: its number would not be free
	}
	tb.lastTree++
	t := &tree{
		id: tb.lastTree, mount: stx.Mnt_id, path: where, policy: fs.opts.Policy(where),
		lent: parent.tree.lends(), rootIno: stx.Ino, rootDev: devOf(stx),
	}
	tb.trees[t.mount] = t
	return t
}

// pathOf is where a node is in the share. The caller holds table.mu.
func pathOf(n *node) string {
	where := ""
	for range maxDepth {
		if n == nil || n.parent == nil {
			break
		}
		where = path.Join(n.name, where)
		n = n.parent
	}
	return where
}

// Drop lets go of all that is mounted at and below a path of the share: its
// descriptors are closed, those in use as soon as that ends, and what the guest
// still knows of it is stale.
func (fs *FS) Drop(where string) {
	fs.nodes.mu.Lock()
	var fds []int
	dead := map[*tree]bool{}
	for mount, t := range fs.nodes.trees {
		if t.path != "" && (t.path == where || within(t.path, where)) {
			t.dead, dead[t] = true, true
			delete(fs.nodes.trees, mount)
		}
	}
	sl := &fs.nodes.slots
	for i := range sl.all {
		if n := sl.all[i].node; n != nil && dead[n.tree] && sl.all[i].uses == 0 {
			fds = append(fds, sl.remove(n))
		}
	}
	fs.nodes.mu.Unlock()
	closeAll(fds)
	closeAll(fs.handles.closeIf(func(h *handle) bool { return dead[h.node.tree] }))
}

// within reports whether p is below dir; all is below "".
func within(p, dir string) bool {
	return p != "" && (dir == "" || len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/')
}
