package passthrough

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (fs *FS) getattr(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.GetAttrIn](r)
	if in == nil {
		return unix.EINVAL
	}
	n, errno := fs.look(t, r.Node(), in.Fh_, in.Flags_&fuse.FUSE_GETATTR_FH != 0)
	if errno != 0 {
		return errno
	}
	defer fs.nodes.put(n)
	putAttr(r, n, &t.stx)
	return 0
}

func (fs *FS) statx(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.StatxIn](r)
	if in == nil {
		return unix.EINVAL
	}
	n, errno := fs.look(t, r.Node(), in.Fh, in.GetattrFlags&fuse.FUSE_GETATTR_FH != 0)
	if errno != 0 {
		return errno
	}
	defer fs.nodes.put(n)
	var out fuse.StatxOut
	setTime(&out.AttrValid, &out.AttrValidNsec, n.tree.policy.Attributes)
	out.Statx.FromStatx(&t.stx)
	out.Ino = n.inode(t.stx.Ino)
	// The host's attributes about mounts and volumes mean nothing in the guest.
	out.Attributes, out.AttributesMask = 0, 0
	out.Mask &= unix.STATX_BASIC_STATS | unix.STATX_BTIME
	wire.Put(r, &out)
	return 0
}

// look reads a node's attributes into t.stx, through its handle if there is
// one, and holds the node.
func (fs *FS) look(t *Thread, id, fh uint64, byHandle bool) (*node, unix.Errno) {
	n, errno := fs.nodes.get(id)
	if errno != 0 {
		return nil, errno
	}
	errno = unix.EBADF
	if byHandle {
		if h, err := fs.handles.use(fh, n.isDir()); err == 0 {
			errno = statFD(h.fd, &t.stx)
			fs.handles.done(h)
		}
	}
	if errno != 0 {
		errno = fs.stat(t, n)
	}
	if errno != 0 {
		fs.nodes.put(n)
		return nil, errno
	}
	return n, 0
}

func putAttr(r *wire.Request, n *node, stx *unix.Statx_t) {
	var out fuse.AttrOut
	setTime(&out.AttrValid, &out.AttrValidNsec, n.tree.policy.Attributes)
	fillAttr(n, stx, &out.Attr)
	wire.Put(r, &out)
}

func (fs *FS) setattr(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.SetAttrIn](r)
	if in == nil {
		return unix.EINVAL
	}
	n, fd, errno := fs.fileToChange(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	// A link has no mode, and a device must not be opened: these use the
	// descriptor's name and open nothing.
	for _, step := range []func(*Thread, *fuse.SetAttrIn, *node, int) unix.Errno{fs.setMode, fs.setOwner, fs.setSize, fs.setTimes} {
		if errno := step(t, in, n, fd); errno != 0 {
			return errno
		}
	}
	if errno := statFD(fd, &t.stx); errno != 0 {
		return errno
	}
	n.stamp.Store(stampOf(&t.stx)) // a link whose time was set is the same
	putAttr(r, n, &t.stx)
	return 0
}

func (fs *FS) setMode(_ *Thread, in *fuse.SetAttrIn, _ *node, fd int) unix.Errno {
	mode, ok := in.GetMode()
	if !ok {
		return 0
	}
	return errnoOf(unix.Fchmodat(unix.AT_FDCWD, procName(fd), mode, 0))
}

func (fs *FS) setOwner(_ *Thread, in *fuse.SetAttrIn, _ *node, fd int) unix.Errno {
	uid, setUID := in.GetUID()
	gid, setGID := in.GetGID()
	if !setUID && !setGID {
		return 0
	}
	return errnoOf(unix.Fchownat(fd, "", int(int32(uid)), int(int32(gid)), unix.AT_EMPTY_PATH))
}

func (fs *FS) setSize(t *Thread, in *fuse.SetAttrIn, n *node, fd int) unix.Errno {
	size, ok := in.GetSize()
	switch {
	case !ok:
		return 0
	case n.kind != unix.S_IFREG || int64(size) < 0:
		return unix.EINVAL
	}
	if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
		if errno := t.asWriter(&in.InHeader); errno != 0 {
			return errno
		}
		defer t.asServer()
	}
	if fh, ok := in.GetFh(); ok {
		if h, errno := fs.handles.use(fh, false); errno == 0 {
			defer fs.handles.done(h)
			return errnoOf(unix.Ftruncate(h.fd, int64(size)))
		}
	}
	return errnoOf(unix.Truncate(procName(fd), int64(size)))
}

func (fs *FS) setTimes(_ *Thread, in *fuse.SetAttrIn, _ *node, fd int) unix.Errno {
	if in.Valid&(fuse.FATTR_ATIME|fuse.FATTR_MTIME) == 0 {
		return 0
	}
	ts := []unix.Timespec{
		timeOf(in.Valid, fuse.FATTR_ATIME, fuse.FATTR_ATIME_NOW, in.Atime, in.Atimensec),
		timeOf(in.Valid, fuse.FATTR_MTIME, fuse.FATTR_MTIME_NOW, in.Mtime, in.Mtimensec),
	}
	return errnoOf(unix.UtimesNanoAt(unix.AT_FDCWD, procName(fd), ts, 0))
}

func timeOf(valid uint32, given, now uint32, sec uint64, nsec uint32) unix.Timespec {
	switch {
	case valid&given == 0:
		return unix.Timespec{Nsec: unix.UTIME_OMIT}
	case valid&now != 0:
		return unix.Timespec{Nsec: unix.UTIME_NOW}
	}
	return unix.Timespec{Sec: int64(sec), Nsec: int64(nsec)}
}

func (fs *FS) readlink(t *Thread, r *wire.Request) unix.Errno {
	n, fd, errno := fs.file(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	if errno := fs.asReader(t, n, fd); errno != 0 {
		return errno
	}
	k, err := unix.Readlinkat(fd, "", t.dirs)
	if err != nil {
		return errnoOf(err)
	}
	r.PutBytes(t.dirs[:k])
	return 0
}

func (fs *FS) statfs(t *Thread, r *wire.Request) unix.Errno {
	n, fd, errno := fs.file(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return errnoOf(err)
	}
	wire.Put(r, &fuse.StatfsOut{
		Blocks: st.Blocks, Bfree: st.Bfree, Bavail: st.Bavail, Files: st.Files, Ffree: st.Ffree,
		Bsize: uint32(st.Bsize), NameLen: uint32(st.Namelen), Frsize: uint32(st.Frsize),
	})
	return 0
}
