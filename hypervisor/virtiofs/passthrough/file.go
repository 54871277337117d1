package passthrough

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// kept are the open flags that also apply on the host. O_APPEND is repeated
// with each write (openRegular has an exception); O_DIRECT only concerns the guest's
// own cache.
const kept = unix.O_ACCMODE | unix.O_TRUNC | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME

// hostFlags returns an open's flags for the host.
func hostFlags(flags uint32) int { return int(flags&kept) | unix.O_CLOEXEC }

func (fs *FS) open(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.OpenIn](r)
	if in == nil {
		return unix.EINVAL
	}
	if errno := fs.reserve(t); errno != 0 {
		return errno
	}
	defer fs.unreserve(t)
	var as *opener
	if in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
		h := r.Header()
		as = &opener{h.Uid, h.Gid, dropSpecial}
	}
	n, fd, errno := fs.openFile(t, r, r.Node(), in.Flags, as)
	if errno != 0 {
		return errno
	}
	id, errno := fs.keepHandle(t, &handle{fd: fd, node: n, flags: in.Flags})
	if errno != 0 {
		return errno
	}
	wire.Put(r, &fuse.OpenOut{Fh: id, OpenFlags: n.tree.fileFlags(fd, in.Flags)})
	return 0
}

// opener is a user that opens a file, with its capabilities; nil is root with all.
type opener struct {
	uid, gid uint32
	caps     uint64
}

// openFile opens a regular file, refuses anything else, and holds its node.
func (fs *FS) openFile(t *Thread, r *wire.Request, id uint64, flags uint32, as *opener) (*node, int, unix.Errno) {
	n, errno := fs.nodes.get(id)
	if errno != 0 {
		return nil, -1, errno
	}
	if n.kind != unix.S_IFREG {
		fs.nodes.put(n)
		return nil, -1, unix.EACCES
	}
	thread, at := r.Header().Pid, fs.nodes.placeOf(n)
	again := fs.retries.take(thread, at)
	fd, errno := fs.openNode(t, as, n, flags, again)
	if errno == unix.ESTALE || again && refused(errno) { // its sender may be next to try
		fs.retries.add(thread, at)
	}
	if errno != 0 {
		fs.nodes.put(n)
		return nil, -1, errno
	}
	return n, fd, 0
}

func (fs *FS) openNode(t *Thread, as *opener, n *node, flags uint32, again bool) (int, unix.Errno) {
	path, errno := fs.fdToOpen(t, n, again)
	if errno != 0 {
		return -1, errno
	}
	defer fs.done(n)
	return fs.openAs(t, as, n, path, flags)
}

// openAs opens a regular file that is open with O_PATH.
func (fs *FS) openAs(t *Thread, as *opener, n *node, path int, flags uint32) (fd int, errno unix.Errno) {
	switch {
	case n.tree.source(path) == processes:
		if as != nil && as.caps == 0 {
			return -1, unix.EACCES // there another user is root
		}
		errno = fs.asProcessReader(t, n)
	case as != nil:
		errno = t.become(as.uid, as.gid, as.caps)
	}
	if errno != 0 {
		return -1, errno
	}
	fd, errno = openRegular(path, flags)
	if back := t.asServer(); back != 0 && errno == 0 {
		_ = unix.Close(fd)
		return -1, back
	}
	return fd, errno
}

// openRegular opens a file that is open with O_PATH, with the guest's flags. It must be a
// regular one: keep has checked that by the same descriptor, so this is for bugs. An
// append-only file (chattr(1), +a) is opened for nothing but O_APPEND.
func openRegular(path int, flags uint32) (int, unix.Errno) {
	how := hostFlags(flags)
	fd, err := unix.Open(procName(path), how, 0)
	if errors.Is(err, unix.EPERM) && flags&unix.O_APPEND != 0 {
		fd, err = unix.Open(procName(path), how|unix.O_APPEND, 0)
	}
	if err != nil {
		return -1, errnoOf(err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return fd, 0
	}
	_ = unix.Close(fd)
	if err != nil {
		return -1, errnoOf(err)
	}
	return -1, unix.EACCES
}

// release closes a file or a directory.
func (fs *FS) release(_ *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.ReleaseIn](r)
	if in == nil {
		return unix.EINVAL
	}
	h, fd := fs.handles.take(in.Fh)
	if h == nil {
		return unix.EBADF
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	fs.nodes.putReleased(h.node)
	return 0
}

func (fs *FS) read(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.ReadIn](r)
	if in == nil || int64(in.Offset) < 0 {
		return unix.EINVAL
	}
	h, errno := fs.handles.use(in.Fh, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	if errno := fs.asReader(t, h.node, h.fd); errno != 0 {
		return errno
	}
	n, errno := r.Room.Fill(&t.scratch, int64(in.Size), vectored(unix.SYS_PREADV, h.fd, in.Offset, 0))
	if errno == 0 {
		r.Filled(n)
	}
	return errno
}

func (fs *FS) write(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.WriteIn](r)
	if in == nil || int64(in.Offset) < 0 {
		return unix.EINVAL
	}
	h, errno := fs.handles.use(in.Fh, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	if in.WriteFlags&fuse.WRITE_CACHE != 0 && appendsOnly(h.fd, h.flags) {
		return unix.EPERM
	}
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if errno := t.asWriter(r.Header()); errno != 0 {
			return errno
		}
	}
	n, errno := r.Data.Drain(&t.scratch, int64(in.Size), vectored(unix.SYS_PWRITEV2, h.fd, in.Offset, howToWrite(in)))
	if errno == 0 {
		wire.Put(r, &fuse.WriteOut{Size: uint32(n)})
	}
	return errno
}

// howToWrite returns the flags of pwritev2(2) for a write. Those of its file may have
// changed since it was opened (fcntl(2)), and a single write may ask for more
// (RWF_DSYNC). What the guest writes back later has none.
func howToWrite(in *fuse.WriteIn) (how uintptr) {
	if in.WriteFlags&fuse.WRITE_CACHE != 0 {
		return 0
	}
	if in.Flags&unix.O_APPEND != 0 {
		how |= unix.RWF_APPEND
	}
	switch {
	case in.Flags&unix.O_SYNC == unix.O_SYNC: // two bits, of which one is O_DSYNC
		how |= unix.RWF_SYNC
	case in.Flags&unix.O_DSYNC != 0:
		how |= unix.RWF_DSYNC
	}
	return how
}

func (fs *FS) flush(_ *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.FlushIn](r)
	if in == nil {
		return unix.EINVAL
	}
	h, errno := fs.handles.use(in.Fh, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	// Closing any descriptor of the file makes a file system such as NFS report
	// whether the data was written.
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	return errnoOf(unix.Close(fd))
}

// fsyncData is fuse.h's FUSE_FSYNC_FDATASYNC.
const fsyncData = 1

func (fs *FS) fsync(_ *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.FsyncIn](r)
	if in == nil {
		return unix.EINVAL
	}
	h, errno := fs.handles.use(in.Fh, r.Op() == wire.Fsyncdir)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	if in.FsyncFlags&fsyncData != 0 {
		return errnoOf(unix.Fdatasync(h.fd))
	}
	return errnoOf(unix.Fsync(h.fd))
}

// fallocateModes are the modes that Linux's FUSE client sends (fs/fuse/file.c,
// fuse_file_fallocate).
const fallocateModes = unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_ZERO_RANGE

func (fs *FS) fallocate(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.FallocateIn](r)
	if in == nil {
		return unix.EINVAL
	}
	if in.Mode&^fallocateModes != 0 {
		return unix.EOPNOTSUPP
	}
	h, errno := fs.handles.use(in.Fh, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	if errno := t.asChanger(r.Header()); errno != 0 {
		return errno
	}
	return errnoOf(unix.Fallocate(h.fd, in.Mode, int64(in.Offset), int64(in.Length)))
}

// lseek finds data and holes; the guest handles other values of whence itself.
func (fs *FS) lseek(_ *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.LseekIn](r)
	if in == nil || in.Whence != unix.SEEK_DATA && in.Whence != unix.SEEK_HOLE {
		return unix.EINVAL
	}
	h, errno := fs.handles.use(in.Fh, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	off, err := unix.Seek(h.fd, int64(in.Offset), int(in.Whence))
	if err != nil {
		return errnoOf(err)
	}
	wire.Put(r, &fuse.LseekOut{Offset: uint64(off)})
	return 0
}

// copyMost is the most that one request copies, so that no thread is busy for
// long.
const copyMost = 16 << 20

func (fs *FS) copyFileRange(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.CopyFileRangeIn](r)
	if in == nil {
		return unix.EINVAL
	}
	from, errno := fs.handles.use(in.FhIn, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(from)
	to, errno := fs.handles.use(in.FhOut, false)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(to)
	if errno := t.asChanger(r.Header()); errno != 0 {
		return errno
	}
	offIn, offOut := int64(in.OffIn), int64(in.OffOut)
	n, err := unix.CopyFileRange(from.fd, &offIn, to.fd, &offOut, int(min(in.Len, copyMost)), int(in.Flags))
	if err != nil {
		return errnoOf(err)
	}
	wire.Put(r, &fuse.WriteOut{Size: uint32(n)})
	return 0
}
