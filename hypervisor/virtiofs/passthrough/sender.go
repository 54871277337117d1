package passthrough

import "golang.org/x/sys/unix"

// Requests are carried out as root, and the guest's kernel has checked the permissions of
// their senders. But the server of a network file system judges by user, and may give
// root no rights (NFS with root_squash): there a request that root may not make is made
// again as its sender, with the same capabilities. A refused call has changed nothing.

// refused reports whether a request failed because its user may not make it.
func refused(errno unix.Errno) bool { return errno == unix.EACCES || errno == unix.EPERM }

// mayServeAsSender reports whether requests about a node may be made as their sender: not
// in a proc file system, in which users see more than root without CAP_SYS_PTRACE
// (processes.go), and not if that cannot be found out.
func (fs *FS) mayServeAsSender(t *Thread, id uint64) bool {
	t.server = root
	if t.asServer() != 0 {
		return false
	}
	n, errno := fs.nodes.get(id)
	if errno != 0 {
		return false
	}
	for range maxDepth {
		source := n.tree.contents.Load()
		if source == unknown {
			if fd, errno := fs.fd(t, n); errno == 0 {
				source = n.tree.source(fd)
				fs.done(n)
			}
		}
		parent := fs.nodes.above(n)
		fs.nodes.put(n)
		if source != unknown || parent == nil {
			if parent != nil {
				fs.nodes.put(parent)
			}
			return source != unknown && source != processes
		}
		n = parent
	}
	fs.nodes.put(n)
	return false
}

// orAsOwner carries out what has no sender and is about a node: as root, and if that is
// refused as the owner of a file, on the same terms as for a sender.
func (fs *FS) orAsOwner(t *Thread, n *node, owner func() user, do func() unix.Errno) unix.Errno {
	errno := do()
	if !refused(errno) || !fs.mayServeAsSender(t, n.id) {
		return errno
	}
	t.server = owner()
	if errno := t.asServer(); errno != 0 {
		return errno
	}
	errno = do()
	t.server = root
	if back := t.asServer(); back != 0 {
		return back
	}
	return errno
}

// above returns the directory of a node, held, or nil if it is in another tree.
func (tb *table) above(n *node) *node {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if n.parent == nil || n.parent.tree != n.tree {
		return nil
	}
	n.parent.refs++
	return n.parent
}
