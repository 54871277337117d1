package passthrough

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// make makes a directory entry with do, as the guest's user, and replies with
// it. do gets the tree and a descriptor of the directory.
func (fs *FS) make(t *Thread, r *wire.Request, name string, umask uint32, do func(of *tree, dfd int) error) unix.Errno {
	dir, dfd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	t.withUmask(umask)
	h := r.Header()
	if errno := t.become(h.Uid, h.Gid, capsOf(h.Uid)); errno != 0 {
		return errno
	}
	if err := do(dir.tree, dfd); err != nil {
		return errnoOf(err)
	}
	return fs.made(t, r, dir, dfd, name)
}

// capsOf returns a user's capabilities for making files: as usual, a file whose
// maker is not in the directory's group does not keep the set-group-ID bit.
func capsOf(uid uint32) uint64 {
	if uid == 0 {
		return keepSpecial
	}
	return dropSpecial
}

// made replies with a new entry.
func (fs *FS) made(t *Thread, r *wire.Request, dir *node, dfd int, name string) unix.Errno {
	var out fuse.EntryOut
	errno := fs.entry(t, dir, dfd, name, &out)
	if errno == 0 {
		wire.Put(r, &out)
	}
	return errno
}

func (fs *FS) mkdir(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.MkdirIn](r)
	name, _, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	return fs.make(t, r, name, in.Umask, func(_ *tree, dfd int) error { return unix.Mkdirat(dfd, name, in.Mode&0o7777) })
}

func (fs *FS) mknod(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.MknodIn](r)
	name, _, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	return fs.make(t, r, name, in.Umask, func(of *tree, dfd int) error {
		if isDevice(in.Mode, in.Rdev) && !fs.allows(of).Devices {
			return unix.EPERM
		}
		return unix.Mknodat(dfd, name, in.Mode, int(in.Rdev))
	})
}

func (fs *FS) symlink(t *Thread, r *wire.Request) unix.Errno {
	_, rest := wire.In[fuse.InHeader](r)
	name, rest, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	target, _, errno := wire.Text(rest)
	if errno != 0 {
		return errno
	}
	return fs.make(t, r, name, 0, func(_ *tree, dfd int) error { return unix.Symlinkat(target, dfd, name) })
}

func (fs *FS) link(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.LinkIn](r)
	name, _, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	n, fd, errno := fs.fileToChange(t, in.Oldnodeid)
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	dir, dfd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	// The descriptor's name in /proc leads to the file, even if that is a link.
	errno = t.asNamer(r.Header(), func() unix.Errno {
		return errnoOf(unix.Linkat(unix.AT_FDCWD, procName(fd), dfd, name, unix.AT_SYMLINK_FOLLOW))
	})
	if errno != 0 {
		return errno
	}
	return fs.made(t, r, dir, dfd, name)
}

func (fs *FS) create(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.CreateIn](r)
	name, _, errno := wire.Name(rest)
	if errno != 0 {
		return errno
	}
	if errno := fs.reserve(t); errno != 0 {
		return errno
	}
	defer fs.unreserve(t)
	dir, dfd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	fd, errno := fs.createAt(t, r, dfd, name, in)
	if errno == unix.EEXIST && in.Flags&unix.O_EXCL == 0 {
		return fs.createOver(t, r, dir, dfd, name, in)
	}
	if errno != 0 {
		return errno
	}
	if errno := statFD(fd, &t.stx); errno != 0 {
		_ = unix.Close(fd)
		return errno
	}
	return fs.created(t, r, dir, name, fd, in.Flags)
}

// createAt makes a file that does not exist yet; it follows no link.
func (fs *FS) createAt(t *Thread, r *wire.Request, dfd int, name string, in *fuse.CreateIn) (int, unix.Errno) {
	t.withUmask(in.Umask)
	h := r.Header()
	if errno := t.become(h.Uid, h.Gid, capsOf(h.Uid)); errno != 0 {
		return -1, errno
	}
	fd, err := unix.Openat(dfd, name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|hostFlags(in.Flags), in.Mode&0o7777)
	return fd, errnoOf(err)
}

// createOver opens a file that already exists, unknown to the guest, whose kernel takes it
// for new and checks no permissions (fuse_create_open). So it is opened only if the sender
// may do so without any capability. Otherwise, and if it is not a regular file, it is
// stale: the guest's kernel looks the name up again and checks, opens a pipe or a device
// itself, or follows a link.
func (fs *FS) createOver(t *Thread, r *wire.Request, dir *node, dfd int, name string, in *fuse.CreateIn) unix.Errno {
	if errno := t.asServer(); errno != 0 {
		return errno
	}
	var out fuse.EntryOut
	if errno := fs.entry(t, dir, dfd, name, &out); errno != 0 {
		return errno
	}
	if out.Mode&unix.S_IFMT != unix.S_IFREG {
		fs.nodes.forget(out.NodeId, 1)
		return unix.ESTALE
	}
	h := r.Header()
	n, fd, errno := fs.openFile(t, r, out.NodeId, in.Flags, &opener{h.Uid, h.Gid, 0})
	if errno != 0 {
		fs.nodes.forget(out.NodeId, 1)
		if refused(errno) {
			return unix.ESTALE
		}
		return errno
	}
	return fs.reply(t, r, &out, n, fd, in.Flags)
}

// created replies with a new, open file, whose attributes are in t.stx.
func (fs *FS) created(t *Thread, r *wire.Request, dir *node, name string, fd int, flags uint32) unix.Errno {
	n, errno := fs.internHeld(dir, name, &t.stx, -1)
	if errno != 0 {
		_ = unix.Close(fd)
		return errno
	}
	var out fuse.EntryOut
	fillEntry(dir, n, &t.stx, &out)
	return fs.reply(t, r, &out, n, fd, flags)
}

// reply replies with an entry and a handle for n and fd, both of which it takes
// over.
func (fs *FS) reply(t *Thread, r *wire.Request, out *fuse.EntryOut, n *node, fd int, flags uint32) unix.Errno {
	id, errno := fs.keepHandle(t, &handle{fd: fd, node: n, flags: flags})
	if errno != 0 {
		fs.nodes.forget(out.NodeId, 1)
		return errno
	}
	wire.Put(r, out)
	wire.Put(r, &fuse.OpenOut{Fh: id, OpenFlags: n.tree.fileFlags(fd, flags)})
	return 0
}

// tmpfile makes a file without a name. Link may give it one, so its descriptor
// is kept as long as the guest knows it, if there is room.
func (fs *FS) tmpfile(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.CreateIn](r)
	if in == nil {
		return unix.EINVAL
	}
	if errno := fs.reserve(t); errno != 0 {
		return errno
	}
	defer fs.unreserve(t)
	dir, dfd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	t.withUmask(in.Umask)
	h := r.Header()
	if errno := t.become(h.Uid, h.Gid, capsOf(h.Uid)); errno != 0 {
		return errno
	}
	fd, err := unix.Open(procName(dfd), unix.O_TMPFILE|hostFlags(in.Flags)&^unix.O_TRUNC, in.Mode&0o7777)
	if err != nil {
		return errnoOf(err)
	}
	return fs.keepNameless(t, r, dir, fd, in.Flags)
}

// keepNameless replies with a nameless file, open as fd. Without room for its
// descriptor it is found while it is open (fdOfHandle).
func (fs *FS) keepNameless(t *Thread, r *wire.Request, dir *node, fd int, flags uint32) unix.Errno {
	errno := statFD(fd, &t.stx)
	path := -1
	if errno == 0 && fs.nodes.mayPin() {
		var err error
		path, err = unix.Open(procName(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
		errno = errnoOf(err)
	}
	if errno != 0 {
		_ = unix.Close(fd)
		return errno
	}
	n, errno := fs.internHeld(dir, "", &t.stx, path)
	if errno != 0 {
		_ = unix.Close(fd)
		return errno
	}
	var out fuse.EntryOut
	fillEntry(dir, n, &t.stx, &out)
	return fs.reply(t, r, &out, n, fd, flags)
}
