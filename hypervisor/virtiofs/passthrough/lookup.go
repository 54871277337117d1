package passthrough

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (fs *FS) lookup(t *Thread, r *wire.Request) unix.Errno {
	_, rest := wire.In[fuse.InHeader](r)
	name, _, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	dir, dfd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	var out fuse.EntryOut
	errno = fs.entry(t, dir, dfd, name, &out)
	if errno == 0 && fs.retries.expects(r.Header().Pid, namedPlace{dir.key, name}) {
		fs.keepToOpen(t, out.NodeId, dfd, name)
	}
	if absent := dir.tree.policy.Absent; errno == unix.ENOENT && absent > 0 {
		out = fuse.EntryOut{} // no node: the guest may cache the name as absent
		out.SetEntryTimeout(absent)
		errno = 0
	}
	if errno == 0 {
		wire.Put(r, &out)
	}
	return errno
}

// dir holds a directory and returns its descriptor, until leave.
func (fs *FS) dir(t *Thread, id uint64) (*node, int, unix.Errno) {
	n, fd, errno := fs.file(t, id)
	if errno == 0 && !n.isDir() {
		fs.leave(n)
		return nil, -1, unix.ENOTDIR
	}
	return n, fd, errno
}

// file is like dir for a node of any kind.
func (fs *FS) file(t *Thread, id uint64) (*node, int, unix.Errno) {
	n, errno := fs.nodes.get(id)
	if errno != 0 {
		return nil, -1, errno
	}
	fd, errno := fs.fd(t, n)
	if errno != 0 {
		fs.nodes.put(n)
		return nil, -1, errno
	}
	return n, fd, 0
}

func (fs *FS) leave(n *node) {
	fs.done(n)
	fs.nodes.put(n)
}

// entry looks up a name and counts it as known to the guest.
func (fs *FS) entry(t *Thread, dir *node, dfd int, name string, out *fuse.EntryOut) unix.Errno {
	fd, errno := fs.inspect(t, dir, dfd, name)
	if errno != 0 {
		return errno
	}
	n, errno := fs.intern(dir, name, &t.stx, fd)
	if errno == 0 {
		fillEntry(dir, n, &t.stx, out)
		// A subvolume of btrfs, in the same mount, has another device, on which inode
		// numbers begin anew.
		if n.isDir() && (n.tree != dir.tree || n.key.dev != dir.key.dev) {
			out.Flags |= fuse.ATTR_SUBMOUNT
		}
	}
	return errno
}

// inspect reads a name's attributes into t.stx. The root of a mount that is not
// lent is to be kept open while it is known, so that its mount's number is not
// reused: inspect returns its descriptor, otherwise -1.
func (fs *FS) inspect(t *Thread, dir *node, dfd int, name string) (fd int, errno unix.Errno) {
	if errno := statName(dfd, name, &t.stx); errno != 0 {
		return -1, errno
	}
	if isOwnProcess(dfd, name, &t.stx) {
		return -1, unix.ENOENT
	}
	if t.stx.Mnt_id == dir.tree.mount || dir.tree.lends() {
		return -1, 0
	}
	if fd, errno = openPath(dfd, name); errno != 0 {
		return -1, errno
	}
	if errno = statFD(fd, &t.stx); errno != 0 {
		_ = unix.Close(fd)
		return -1, errno
	}
	return fd, 0
}

// intern finds or makes the node of a file, and counts a lookup. fd is a
// descriptor of it to keep as long as the node, -1 for none; intern takes it
// over. The node is not held: the guest may forget it at once.
func (fs *FS) intern(dir *node, name string, stx *unix.Statx_t, fd int) (*node, unix.Errno) {
	return fs.internAnd(dir, name, stx, fd, 0)
}

// internHeld is intern, and holds the node.
func (fs *FS) internHeld(dir *node, name string, stx *unix.Statx_t, fd int) (*node, unix.Errno) {
	return fs.internAnd(dir, name, stx, fd, 1)
}

func (fs *FS) internAnd(dir *node, name string, stx *unix.Statx_t, fd int, holds int32) (*node, unix.Errno) {
	tb := &fs.nodes
	tb.mu.Lock()
	n, fds, errno := fs.find(dir, name, stx)
	if errno == 0 {
		n.lookups++
		n.refs += holds
		fd = tb.keepOpen(n, fd)
	}
	tb.mu.Unlock()
	closeAll(fds)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return n, errno
}

// keepOpen keeps fd, -1 for none, as long as the node, and returns it if the
// node already has one. The caller holds mu.
func (tb *table) keepOpen(n *node, fd int) (spare int) {
	if fd < 0 || n.slot >= 0 {
		return fd
	}
	tb.slots.insert(n, fd)
	tb.slots.pin(n)
	tb.rest(n)
	return -1
}

// find does intern's search. The caller holds table.mu and closes fds.
func (fs *FS) find(dir *node, name string, stx *unix.Statx_t) (n *node, fds []int, errno unix.Errno) {
	tb := &fs.nodes
	tree := fs.treeBelow(dir, name, stx)
	k := key{ino: stx.Ino, tree: tree.id, dev: devOf(stx)}
	kind, stamp := kindOf(stx), stampOf(stx)
	if n = tb.byKey[k]; n != nil && n.kind == kind && n.stamp.Load() == stamp {
		if n != dir && n.id != rootID {
			fds = tb.renamed(n, dir, name)
		}
		return n, fds, 0
	}
	// An inode number that is now another kind of file, or another link, is another
	// file: the old node stays known only by its number.
	if tb.live() >= maxNodes {
		return nil, nil, unix.ENFILE
	}
	n = tb.add(k, tree, dir, name, kind)
	n.stamp.Store(stamp)
	n.device = tb.device(dir, k, kind)
	return n, nil, 0
}

// fillEntry describes a node to the guest. The policy of the directory, which
// may be in another tree, decides how long the name is cached.
func fillEntry(dir, n *node, stx *unix.Statx_t, out *fuse.EntryOut) {
	*out = fuse.EntryOut{NodeId: n.id}
	valid := dir.tree.policy.Entries
	if n.tree.lent && n.tree != dir.tree {
		valid = min(valid, lentEntries)
	}
	setTime(&out.EntryValid, &out.EntryValidNsec, valid)
	setTime(&out.AttrValid, &out.AttrValidNsec, n.tree.policy.Attributes)
	fillAttr(n, stx, &out.Attr)
}

func setTime(sec *uint64, nsec *uint32, d time.Duration) {
	*sec, *nsec = uint64(d/time.Second), uint32(d%time.Second)
}

func fillAttr(n *node, stx *unix.Statx_t, a *fuse.Attr) {
	*a = fuse.Attr{
		Ino: n.inode(stx.Ino), Size: stx.Size, Blocks: stx.Blocks,
		Atime: uint64(stx.Atime.Sec), Mtime: uint64(stx.Mtime.Sec), Ctime: uint64(stx.Ctime.Sec),
		Atimensec: stx.Atime.Nsec, Mtimensec: stx.Mtime.Nsec, Ctimensec: stx.Ctime.Nsec,
		Mode: uint32(stx.Mode), Nlink: stx.Nlink, Owner: fuse.Owner{Uid: stx.Uid, Gid: stx.Gid},
		Rdev: uint32(unix.Mkdev(stx.Rdev_major, stx.Rdev_minor)), Blksize: stx.Blksize,
	}
}

func (fs *FS) forget(_ *Thread, r *wire.Request) unix.Errno {
	if in, _ := wire.In[fuse.ForgetIn](r); in != nil {
		fs.nodes.forget(in.NodeId, in.Nlookup)
	}
	return 0
}

// batchForgetIn and forgetOne are fuse.h's fuse_batch_forget_in, fuse_forget_one.
type batchForgetIn struct {
	fuse.InHeader
	Count, Dummy uint32
}

// forgetOneLen is the length of a node's number and a count.
const forgetOneLen = 16

func (fs *FS) batchForget(_ *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[batchForgetIn](r)
	if in == nil {
		return 0
	}
	for i := uint32(0); i < in.Count && len(rest) >= forgetOneLen; i++ {
		fs.nodes.forget(wire.U64(rest), wire.U64(rest[8:]))
		rest = rest[forgetOneLen:]
	}
	return 0
}
