package passthrough

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how many directories are reopened on the way to a file. A
// guest may build deeper trees, but cannot use them once the descriptors on the
// way are closed.
const maxDepth = 4096

const (
	statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID | unix.STATX_MNT_ID_UNIQUE
	openHow  = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
)

// fd returns a descriptor, opened with O_PATH, of a node that the caller holds;
// it is valid until done. A file that is not where it was last seen is stale,
// unless the guest has it open.
func (fs *FS) fd(t *Thread, n *node) (int, unix.Errno) {
	fd, errno := fs.fdAt(t, n, 0)
	if errno != unix.ESTALE && errno != unix.ENOENT {
		return fd, errno
	}
	// A rename may have been under way.
	n.tree.rename.RLock()
	n.tree.rename.RUnlock() //nolint:staticcheck // only to wait for a rename
	if fd, errno = fs.fdAt(t, n, 0); absent(errno) {
		return fs.fdOfHandle(t, n)
	}
	return fd, errno
}

// fdOfHandle is fd for a file that is not found by its name: it is still there if
// the guest has it open.
func (fs *FS) fdOfHandle(t *Thread, n *node) (int, unix.Errno) {
	h := fs.handles.useOf(n)
	if h == nil {
		return -1, unix.ESTALE
	}
	defer fs.handles.done(h)
	fd, err := unix.Open(procName(h.fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, errnoOf(err)
	}
	return fs.keep(t, n, fd)
}

// done ends a use of a node's descriptor.
func (fs *FS) done(n *node) {
	tb := &fs.nodes
	tb.mu.Lock()
	fds := [2]int{tb.rest(n), -1} // the first may be another node's
	if n.slot >= 0 && n.tree.dead && tb.slots.all[n.slot].uses == 0 {
		fds[1] = tb.slots.remove(n)
	}
	tb.mu.Unlock()
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (fs *FS) fdAt(t *Thread, n *node, depth int) (int, unix.Errno) {
	tb := &fs.nodes
	tb.mu.Lock()
	if n.slot >= 0 {
		fd := tb.slots.use(n)
		tb.mu.Unlock()
		return fd, 0
	}
	parent, name := n.parent, n.name
	if parent == nil || name == "" || n.tree.dead || depth > maxDepth {
		tb.mu.Unlock()
		return -1, unix.ESTALE
	}
	parent.refs++
	tb.mu.Unlock()
	defer tb.put(parent)
	pfd, errno := fs.fdAt(t, parent, depth+1)
	if errno != 0 {
		return -1, errno
	}
	defer fs.done(parent)
	fd, errno := openPath(pfd, name)
	if errno != 0 {
		return -1, errno
	}
	return fs.keep(t, n, fd)
}

// keep makes fd the descriptor of a node, in use, if it is the node's file.
func (fs *FS) keep(t *Thread, n *node, fd int) (int, unix.Errno) {
	errno := statFD(fd, &t.stx)
	if errno == 0 && !n.is(&t.stx) {
		errno = unix.ESTALE
	}
	if errno != 0 {
		_ = unix.Close(fd)
		return -1, errno
	}
	tb := &fs.nodes
	tb.mu.Lock()
	if n.slot < 0 {
		tb.slots.insert(n, fd)
		tb.mu.Unlock()
		return fd, 0
	}
	have := tb.slots.use(n) // another thread was first
	tb.mu.Unlock()
	_ = unix.Close(fd)
	return have, 0
}

// is reports whether stx describes the node's file. The type is compared too: a
// guest may get an inode's number again by mknod, and what was a regular file is
// opened. The kernel always fills in the type (fs/stat.c, cp_statx).
func (n *node) is(stx *unix.Statx_t) bool {
	return stx.Ino == n.key.ino && devOf(stx) == n.key.dev && stx.Mnt_id == n.tree.mount && kindOf(stx) == n.kind &&
		stampOf(stx) == n.stamp.Load()
}

func kindOf(stx *unix.Statx_t) uint16 { return stx.Mode & unix.S_IFMT }

// stampOf returns a number in which a link differs from one that gets its inode's number
// later: the guest's kernel keeps where a link leads as long as it knows the node
// (FUSE_CACHE_SYMLINKS), whatever its attributes are. It is made of what that kernel
// compares of regular files, the time of modification and the size. A copy of the link
// has the same, as overlayfs makes it when its owner changes (fs/overlayfs/copy_up.c).
//
// It is 0 for other files.
func stampOf(stx *unix.Statx_t) uint32 {
	if kindOf(stx) != unix.S_IFLNK {
		return 0
	}
	const odd = 0x9e3779b1 // spreads sizes over the number
	return uint32(stx.Mtime.Sec*int64(time.Second)+int64(stx.Mtime.Nsec)) + uint32(stx.Size)*odd
}

// devOf packs a device's numbers as the kernel does (include/linux/kdev_t.h).
func devOf(stx *unix.Statx_t) uint32 { return stx.Dev_major<<20 | stx.Dev_minor&0xfffff }

// openPath opens a directory entry with O_PATH.
func openPath(dir int, name string) (int, unix.Errno) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: openHow})
	return fd, errnoOf(err)
}

func statFD(fd int, stx *unix.Statx_t) unix.Errno {
	return errnoOf(unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, stx))
}

func statName(dir int, name string, stx *unix.Statx_t) unix.Errno {
	return errnoOf(unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statMask, stx))
}

// stat reads a node's attributes into t.stx: through its descriptor, if it has
// one, otherwise by its name, without opening anything.
func (fs *FS) stat(t *Thread, n *node) unix.Errno {
	tb := &fs.nodes
	tb.mu.Lock()
	parent, name, known := n.parent, n.name, n.slot >= 0
	if known || parent == nil || name == "" {
		tb.mu.Unlock()
		return fs.statOpen(t, n)
	}
	parent.refs++
	tb.mu.Unlock()
	defer tb.put(parent)
	pfd, errno := fs.fd(t, parent)
	if errno != 0 {
		return errno
	}
	errno = statName(pfd, name, &t.stx)
	fs.done(parent)
	if errno == 0 && n.is(&t.stx) {
		return 0
	}
	return fs.statOpen(t, n) // which waits for a rename
}

// inPlace returns ESTALE for a file that is not where it was last seen: its
// descriptor, kept from earlier, would still lead to what the host has replaced.
// The guest's kernel looks such a name up again. A file without a name is where
// it was.
func (fs *FS) inPlace(t *Thread, n *node) unix.Errno {
	errno := fs.checkPlace(t, n)
	if !absent(errno) {
		return errno
	}
	// A rename may have been under way.
	n.tree.rename.RLock()
	n.tree.rename.RUnlock() //nolint:staticcheck // only to wait for a rename
	if errno = fs.checkPlace(t, n); absent(errno) {
		return unix.ESTALE
	}
	return errno
}

// fileToChange is file for a change that the guest may ask for by a path: a file that
// was replaced is stale, unless the guest has it open. What it uses without a handle
// here (a working directory, an open pipe or device) is taken for open.
func (fs *FS) fileToChange(t *Thread, id uint64) (*node, int, unix.Errno) {
	n, fd, errno := fs.file(t, id)
	if errno != 0 || n.kind != unix.S_IFREG && n.kind != unix.S_IFLNK {
		return n, fd, errno
	}
	errno = fs.inPlace(t, n)
	if errno == unix.ESTALE {
		if h := fs.handles.useOf(n); h != nil {
			fs.handles.done(h)
			errno = 0
		}
	}
	if errno != 0 {
		fs.leave(n)
		return nil, -1, errno
	}
	return n, fd, 0
}

func (fs *FS) checkPlace(t *Thread, n *node) unix.Errno {
	tb := &fs.nodes
	tb.mu.Lock()
	parent, name := n.parent, n.name
	if parent == nil || name == "" {
		tb.mu.Unlock()
		return 0
	}
	parent.refs++
	tb.mu.Unlock()
	defer tb.put(parent)
	return fs.statBelow(t, n, parent, name)
}

// statBelow reads the attributes of a name into t.stx, which must be the node's.
// The caller holds parent.
func (fs *FS) statBelow(t *Thread, n, parent *node, name string) unix.Errno {
	pfd, errno := fs.fd(t, parent)
	if errno != 0 {
		return errno
	}
	defer fs.done(parent)
	if errno := statName(pfd, name, &t.stx); errno != 0 {
		return errno
	}
	if !n.is(&t.stx) {
		return unix.ESTALE
	}
	return 0
}

func (fs *FS) statOpen(t *Thread, n *node) unix.Errno {
	fd, errno := fs.fd(t, n)
	if errno != 0 {
		return errno
	}
	defer fs.done(n)
	return statFD(fd, &t.stx)
}
