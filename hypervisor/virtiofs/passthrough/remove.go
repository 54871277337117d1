package passthrough

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (fs *FS) unlink(t *Thread, r *wire.Request) unix.Errno { return fs.remove(t, r, 0) }

func (fs *FS) rmdir(t *Thread, r *wire.Request) unix.Errno { return fs.remove(t, r, unix.AT_REMOVEDIR) }

func (fs *FS) remove(t *Thread, r *wire.Request, flags int) unix.Errno {
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
	gone := fs.bindDescriptor(t, dir, dfd, name)
	err := unix.Unlinkat(dfd, name, flags)
	fs.unname(gone, dir, name, err == nil)
	return errnoOf(err)
}

// bound is the node of a name that is about to be removed, nil for none. keep is
// set if its descriptor must be kept once it has no name that is known: because
// the file has no other name, because unused ones of its tree are closed soon, or
// because it is a pipe, a socket or a device. Those the guest opens without asking
// the host, which has no handle by which it would find one that is open.
//
// bare is set if the node has no descriptor.
type bound struct {
	node *node
	keep bool
	bare bool
}

// bindDescriptor finds the node of a name that is about to be removed, if the
// guest knows it, holds it and ensures that it has a descriptor in use: without
// a name it could not be found again.
func (fs *FS) bindDescriptor(t *Thread, dir *node, dfd int, name string) bound {
	if dir.tree.source(dfd) == remote {
		if b, ok := fs.bindBare(t, dir, dfd, name); ok {
			return b
		}
	}
	fd, errno := openPath(dfd, name)
	if errno != 0 {
		return bound{}
	}
	b, spare := fs.bind(t, dir, fd)
	if spare >= 0 {
		_ = unix.Close(spare)
	}
	return b
}

// bindBare is bindDescriptor for a file of NFS, whose client renames a file that is removed
// and has a descriptor (fs/nfs/dir.c, nfs_unlink): until that is closed the file takes
// space, and its directory cannot be removed. So it closes the one of a regular file that
// the guest does not have open, which needs none. It reports whether the file is one.
func (fs *FS) bindBare(t *Thread, dir *node, dfd int, name string) (b bound, ok bool) {
	if statName(dfd, name, &t.stx) != 0 || t.stx.Mnt_id != dir.tree.mount || t.stx.Mode&unix.S_IFMT != unix.S_IFREG {
		return bound{}, false
	}
	b, fd, ok := fs.nodes.holdBare(dir.tree, &t.stx, &fs.handles)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return b, ok
}

// holdBare holds the node of a file for bindBare, and returns its descriptor to close, or
// -1.
func (tb *table) holdBare(in *tree, stx *unix.Statx_t, open *handles) (b bound, fd int, ok bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	n := tb.byKey[key{ino: stx.Ino, tree: in.id, dev: devOf(stx)}]
	if n == nil || !n.is(stx) {
		return bound{}, -1, true
	}
	if open.has(func(h *handle) bool { return h.node == n }) {
		return bound{}, -1, false
	}
	fd = -1
	if n.slot >= 0 {
		if sl := &tb.slots.all[n.slot]; sl.uses > 0 || sl.pinned {
			return bound{}, -1, false
		}
		fd = tb.slots.remove(n)
	}
	n.refs++
	return bound{node: n, bare: true}, fd, true
}

// bind is bindDescriptor with the file opened with O_PATH. It returns a
// descriptor to close, or -1.
func (fs *FS) bind(t *Thread, dir *node, fd int) (b bound, spare int) {
	if statFD(fd, &t.stx) != 0 || t.stx.Mnt_id != dir.tree.mount {
		return bound{}, fd
	}
	tb := &fs.nodes
	tb.mu.Lock()
	defer tb.mu.Unlock()
	n := tb.byKey[key{ino: t.stx.Ino, tree: dir.tree.id, dev: devOf(&t.stx)}]
	if n == nil || n.id == rootID || !n.is(&t.stx) {
		return bound{}, fd
	}
	b = bound{node: n, keep: n.kind != unix.S_IFREG || t.stx.Nlink <= 1 || n.tree.lent}
	if b.keep && !tb.slots.mayPin() {
		return bound{}, fd
	}
	n.refs++
	if n.slot >= 0 {
		tb.slots.use(n)
		return b, fd
	}
	tb.slots.insert(n, fd)
	return b, -1
}

// unname completes bindDescriptor. If the name is gone, and was the only one that
// is known, the node's descriptor may be kept as long as the node. Without, the file
// is found by the next name that the guest looks up: its kernel does that when a
// file is stale.
func (fs *FS) unname(b bound, dir *node, name string, gone bool) {
	n := b.node
	if n == nil {
		return
	}
	tb := &fs.nodes
	tb.mu.Lock()
	if gone && n.parent == dir && n.name == name {
		n.name = ""
	}
	if gone && n.name == "" && b.keep {
		tb.slots.pin(n)
		if n.kind == unix.S_IFREG {
			tb.freeing.removed(n)
		}
	}
	tb.mu.Unlock()
	if b.bare {
		tb.put(n)
		return
	}
	fs.leave(n)
}

// rename1In is fuse.h's fuse_rename_in; go-fuse has the newer one.
type rename1In struct {
	fuse.InHeader
	Newdir uint64
}

func (fs *FS) rename(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[rename1In](r)
	if in == nil {
		return unix.EINVAL
	}
	return fs.renameTo(t, r, in.Newdir, 0, rest)
}

func (fs *FS) rename2(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.RenameIn](r)
	if in == nil || in.Flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 {
		return unix.EINVAL
	}
	return fs.renameTo(t, r, in.Newdir, uint(in.Flags), rest)
}

func (fs *FS) renameTo(t *Thread, r *wire.Request, newdir uint64, flags uint, names []byte) unix.Errno {
	from, names, errno := wire.Name(names)
	if errno != 0 {
		return errno
	}
	to, _, errno := wire.Name(names)
	if errno != 0 {
		return errno
	}
	olddir, ofd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(olddir)
	dir, dfd, errno := fs.dir(t, newdir)
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	if dir.tree != olddir.tree {
		return unix.EXDEV
	}
	move := func() unix.Errno { return fs.move(t, place{olddir, ofd, from}, place{dir, dfd, to}, flags) }
	dir.tree.rename.Lock()
	defer dir.tree.rename.Unlock()
	if flags&unix.RENAME_WHITEOUT == 0 {
		return t.asNamer(r.Header(), move)
	}
	// The kernel makes the whiteout, which is a device.
	h := r.Header()
	if errno := t.become(h.Uid, h.Gid, keepSpecial); errno != 0 {
		return errno
	}
	return move()
}

// place is an entry of an open directory.
type place struct {
	dir  *node
	fd   int
	name string
}

// move renames, and updates the nodes concerned.
func (fs *FS) move(t *Thread, from, to place, flags uint) unix.Errno {
	var over bound
	if flags&unix.RENAME_EXCHANGE == 0 {
		over = fs.bindDescriptor(t, to.dir, to.fd, to.name)
	}
	err := unix.Renameat2(from.fd, from.name, to.fd, to.name, flags)
	fs.unname(over, to.dir, to.name, err == nil)
	if err != nil {
		return errnoOf(err)
	}
	fs.moved(t, to)
	if flags&unix.RENAME_EXCHANGE != 0 {
		fs.moved(t, from)
	}
	return 0
}

// moved updates the place of a name's node, if the guest knows it.
func (fs *FS) moved(t *Thread, at place) {
	if statName(at.fd, at.name, &t.stx) != 0 {
		return
	}
	tb := &fs.nodes
	tb.mu.Lock()
	var fds []int
	n := tb.byKey[key{ino: t.stx.Ino, tree: at.dir.tree.id, dev: devOf(&t.stx)}]
	if n != nil && n != at.dir && n.id != rootID && n.is(&t.stx) {
		fds = tb.renamed(n, at.dir, at.name)
	}
	tb.mu.Unlock()
	closeAll(fds)
}
