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
// (processes.go), and not if that cannot be found out. The thread is root.
func (fs *FS) mayServeAsSender(t *Thread, id uint64) bool {
	for n := range fs.nodes.upwards(id) {
		if source := fs.sourceOf(t, n); source != unknown {
			return source != processes
		}
	}
	return false
}

// sourceOf is tree.source for the tree of a node, which may not be open.
func (fs *FS) sourceOf(t *Thread, n *node) int32 {
	if source := n.tree.contents.Load(); source != unknown {
		return source
	}
	fd, errno := fs.fd(t, n)
	if errno != 0 {
		return unknown
	}
	defer fs.done(n)
	return n.tree.source(fd)
}

// orAsOwner carries out what has no sender and is about a node: as root, and if that is
// refused as the owner of a file, on the same terms as for a sender.
func (fs *FS) orAsOwner(t *Thread, n *node, owner func() user, do func() unix.Errno) unix.Errno {
	errno := t.serveAs(root, do)
	if !refused(errno) || !fs.mayServeAsSender(t, n.id) {
		return errno
	}
	return t.serveAs(owner(), do)
}

// ownerOf returns the owner of a file, root if that is not known.
func ownerOf(fd int) user {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return root
	}
	return user{st.Uid, st.Gid}
}
