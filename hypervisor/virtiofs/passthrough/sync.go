package passthrough

import (
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// syncfs flushes what the guest has as one file system: that of a directory, and those of
// the files that are mounted below it one by one. The first error is returned, and the
// others are flushed nevertheless. A mounted file whose file system hangs holds up the
// guest's sync, as it does on the host.
func (fs *FS) syncfs(t *Thread, r *wire.Request) unix.Errno {
	dir, fd, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(dir)
	first := flush(openDir(fd))
	flushed := map[uint32]bool{dir.key.dev: true}
	for _, n := range fs.nodes.mountedFiles(dir) {
		if !flushed[n.key.dev] {
			errno := fs.flushFile(t, n)
			flushed[n.key.dev] = errno == 0
			if first == 0 && !absent(errno) {
				first = errno
			}
		}
		fs.nodes.put(n)
	}
	return first
}

// mountedFiles returns the regular files, held, that are mounted in directories of dir's
// tree and device: the guest has no file system for each.
func (tb *table) mountedFiles(dir *node) (files []*node) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, t := range tb.trees {
		n := tb.byKey[key{ino: t.rootIno, tree: t.id, dev: t.rootDev}]
		if n != nil && n.kind == unix.S_IFREG && n.parent != nil && n.parent.tree == dir.tree && n.parent.key.dev == dir.key.dev {
			n.refs++
			files = append(files, n)
		}
	}
	return files
}

// flushFile flushes the file system of a regular file. To open another kind may have
// effects (a FIFO, a device), and there is nothing to flush in what the kernel makes.
func (fs *FS) flushFile(t *Thread, n *node) unix.Errno {
	fs.nodes.flushing(n.tree, 1)
	defer fs.nodes.flushing(n.tree, -1)
	fd, errno := fs.fd(t, n)
	if errno != 0 {
		return errno
	}
	defer fs.done(n)
	if kind := n.tree.source(fd); kind == generated || kind == processes {
		return 0
	}
	return fs.orAsOwner(t, n, func() user { return ownerOf(fd) }, func() unix.Errno { return flush(openRegular(fd, unix.O_RDONLY)) })
}

// flush flushes the file system of a file that was opened, and closes the file.
func flush(fd int, errno unix.Errno) unix.Errno {
	if errno != 0 {
		return errno
	}
	defer unix.Close(fd)
	return errnoOf(unix.Syncfs(fd))
}

// flushing counts a sync that opens files of a mount.
func (tb *table) flushing(t *tree, more int) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t.flushes += more
}

// flushes reports whether a sync has a file open in the mounts at and below a path.
func (tb *table) flushes(where string) bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, t := range tb.trees {
		if t.flushes > 0 && t.at(where) {
			return true
		}
	}
	return false
}
