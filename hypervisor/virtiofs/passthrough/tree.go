package passthrough

import (
	"context"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Policy is how much of a tree the guest may cache.
type Policy struct {
	// Entries and Attributes are for how long names and attributes may be
	// cached.
	Entries, Attributes time.Duration
	// Absent is for how long a missing name may be cached as absent.
	Absent time.Duration
	// Keep keeps a file's pages, and a directory's entries, cached from one
	// open to the next. Direct disables that cache.
	Keep, Direct bool
	// Quiet omits the flush request when a file is closed: every write was
	// answered, and a local file system has nothing more to report.
	Quiet bool
	// Passing leaves the tree's files out of saved states: the guest needs none of them
	// for long, and finds none elsewhere. What it has open is closed there.
	Passing bool
}

// forever is long enough for what only the guest changes.
const forever = 24 * time.Hour

// Policies, by Kata's virtio_fs_cache; Rootfs for a tree that mostly its guest
// changes, and Exclusive for one that only its guest does. With Keep a change by
// the host is found when the attributes are asked for again: the guest's kernel
// drops a file's pages if its time of modification or its size is another
// (CAP_AUTO_INVAL_DATA), and a directory's entries likewise.
var (
	Never     = Policy{Direct: true}
	Metadata  = Policy{Entries: time.Second, Attributes: time.Second, Direct: true}
	Auto      = Policy{Entries: time.Second, Attributes: time.Second}
	Always    = Policy{Entries: forever, Attributes: forever, Keep: true}
	Rootfs    = Policy{Entries: time.Second, Attributes: time.Second, Absent: time.Second, Keep: true, Quiet: true}
	Exclusive = Policy{Entries: forever, Attributes: forever, Absent: forever, Keep: true, Quiet: true}
)

// shareTree is the number of the share's own tree.
const shareTree = 0

// tree is one mount of the share.
type tree struct {
	id     uint32
	mount  uint64
	path   string // its root's, relative to the share's root
	policy Policy
	// lent is set if the host may unmount it; the following then identify its
	// root (lent.go).
	lent    bool
	rootIno uint64
	rootDev uint32
	// rename is held for reading while a failed search by name is repeated, and
	// for writing during a rename.
	rename sync.RWMutex
	// contents is what source has found out.
	contents atomic.Int32

	// table.mu guards the following.
	nodes   int
	flushes int // syncs that have a file of it open (sync.go)
	dead    bool
	devices []uint32 // by their numbers (inode.go)
}

// dirFlags returns the caching flags of the reply to an open of a directory.
func (t *tree) dirFlags() uint32 {
	if t.policy.Keep {
		return fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_CACHE_DIR
	}
	return 0
}

// fileFlags returns the caching flags of the reply to an open of a file: fd is open,
// flags are the open's.
func (t *tree) fileFlags(fd int, flags uint32) uint32 {
	var out uint32
	switch {
	case t.policy.Direct || t.isGenerated(fd, flags) || appendsOnly(fd, flags):
		out |= fuse.FOPEN_DIRECT_IO
	case t.policy.Keep:
		out |= fuse.FOPEN_KEEP_CACHE
	}
	if t.policy.Quiet || flags&unix.O_ACCMODE == unix.O_RDONLY {
		out |= fuse.FOPEN_NOFLUSH
	}
	return out
}

// appendsOnly reports whether a file that may be read and written was opened as an
// append-only one. A shared mapping of it, which the guest's kernel does not refuse as the
// host's does, would write whole pages back, and the host would append them. It is refused
// by FOPEN_DIRECT_IO, or if the guest maps such files (wantedToMap), what is written back is.
func appendsOnly(fd int, flags uint32) bool {
	const both = unix.O_RDWR | unix.O_APPEND
	if flags&(unix.O_ACCMODE|unix.O_APPEND) != both {
		return false
	}
	on, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && on&unix.O_APPEND != 0
}

// treeBelow returns the tree of a file below parent: the parent's, unless
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
		t.dead = true // it has no descriptors, or its number would not have been reused
	}
	tb.lastTree++
	t := &tree{
		id: tb.lastTree, mount: stx.Mnt_id, path: where, policy: fs.opts.Policy(where),
		lent: parent.tree.lends(), rootIno: stx.Ino, rootDev: devOf(stx),
	}
	tb.trees[t.mount] = t
	return t
}

// pathOf returns a node's path in the share. The caller holds table.mu.
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

// Drop releases everything that is mounted at and below paths of the share:
// its descriptors are closed, those in use as soon as they become idle, and the
// guest's nodes of it are stale. It waits within ctx for files to be closed; an error
// says that the host's file system hangs.
func (fs *FS) Drop(ctx context.Context, where ...string) error {
	fs.nodes.mu.Lock()
	files := closing{}
	dead := map[*tree]bool{}
	for mount, t := range fs.nodes.trees {
		if slices.ContainsFunc(where, t.at) {
			t.dead, dead[t] = true, true
			delete(fs.nodes.trees, mount)
		}
	}
	sl := &fs.nodes.slots
	for i := range sl.all {
		if n := sl.all[i].node; n != nil && dead[n.tree] && sl.all[i].uses == 0 {
			files.add(n.tree, sl.remove(n))
		}
	}
	fs.nodes.mu.Unlock()
	fs.handles.closeIf(files, func(h *handle) bool { return dead[h.node.tree] })
	return files.within(ctx)
}

// Trees returns the numbers of the mounts at and below a path of the share that the
// guest knows.
func (fs *FS) Trees(where string) (numbers []uint32) {
	fs.nodes.mu.Lock()
	defer fs.nodes.mu.Unlock()
	for _, t := range fs.nodes.trees {
		if t.at(where) {
			numbers = append(numbers, t.id)
		}
	}
	return numbers
}

// HasOpen reports whether the guest has anything open in the mounts at and below a path
// of the share, or a sync that it has asked for.
func (fs *FS) HasOpen(where string) bool {
	return fs.nodes.flushes(where) || fs.handles.has(func(h *handle) bool { return h.node.tree.at(where) })
}

// at reports whether the tree is mounted at or below a path of the share.
func (t *tree) at(where string) bool {
	return t.path != "" && (t.path == where || within(t.path, where))
}

// within reports whether p is dir or below it; every path is below "".
func within(p, dir string) bool {
	return p != "" && (dir == "" || len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/')
}
