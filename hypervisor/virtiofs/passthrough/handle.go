package passthrough

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// handle is a file or directory that the guest has open.
type handle struct {
	fd   int
	node *node // held
	dir  bool
	// flags are the guest's open flags, for a file that is opened again (load.go).
	flags uint32

	// mu serializes readers of a directory, whose descriptor has the position pos.
	mu  sync.Mutex
	pos uint64

	// handles.mu guards the rest.
	uses   int
	closed bool
}

// handles are the open ones.
type handles struct {
	// mu guards the table and the handles' uses.
	mu    sync.Mutex
	all   []*handle // number-1 is the index
	free  []uint64
	limit int
	// reserved is the number of requests that have a place but no handle yet.
	reserved int
}

// reserve gives the thread's request a place for a handle, or ENFILE. A request that
// opens a file asks for it before it makes or truncates the file, and calls
// unreserve at its end.
func (fs *FS) reserve(t *Thread) unix.Errno {
	hs := &fs.handles
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if len(hs.all)-len(hs.free)+hs.reserved >= hs.limit {
		return unix.ENFILE
	}
	hs.reserved++
	t.reserved = true
	return 0
}

// unreserve gives up the thread's place, unless keepHandle has used it.
func (fs *FS) unreserve(t *Thread) {
	if !t.reserved {
		return
	}
	fs.handles.mu.Lock()
	defer fs.handles.mu.Unlock()
	fs.handles.unreserve(t)
}

// unreserve is FS.unreserve with mu held.
func (hs *handles) unreserve(t *Thread) {
	if t.reserved {
		t.reserved = false
		hs.reserved--
	}
}

// keepHandle puts a handle in the thread's reserved place and returns its number. It
// takes over the descriptor and the hold on the node, also when it fails: with ESTALE,
// for a mount that was dropped meanwhile. Drop closes the handles that it finds after
// it has marked the mount.
func (fs *FS) keepHandle(t *Thread, h *handle) (uint64, unix.Errno) {
	id, errno := uint64(0), unix.ESTALE
	fs.nodes.mu.Lock()
	if !h.node.tree.dead {
		id, errno = fs.handles.add(t, h), 0
	}
	fs.nodes.mu.Unlock()
	if errno != 0 {
		_ = unix.Close(h.fd)
		fs.nodes.put(h.node)
	}
	return id, errno
}

// add gives a handle its number, in the thread's place.
func (hs *handles) add(t *Thread, h *handle) uint64 {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.unreserve(t)
	if last := len(hs.free) - 1; last >= 0 {
		id := hs.free[last]
		hs.free = hs.free[:last]
		hs.all[id-1] = h
		return id
	}
	hs.all = append(hs.all, h)
	return uint64(len(hs.all))
}

// use finds a handle of a file (or a directory) until done.
func (hs *handles) use(id uint64, dir bool) (*handle, unix.Errno) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if id == 0 || id > uint64(len(hs.all)) {
		return nil, unix.EBADF
	}
	h := hs.all[id-1]
	if h == nil || h.dir != dir || h.closed {
		return nil, unix.EBADF
	}
	h.uses++
	return h, 0
}

// useOf finds a handle of a node until done, or returns nil.
func (hs *handles) useOf(n *node) *handle {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h != nil && h.node == n && !h.closed {
			h.uses++
			return h
		}
	}
	return nil
}

// done ends a use, and closes the file if that was the last one of a handle
// that is closed.
func (hs *handles) done(h *handle) {
	hs.mu.Lock()
	h.uses--
	last := h.closed && h.uses == 0
	hs.mu.Unlock()
	if last {
		_ = unix.Close(h.fd)
	}
}

// take removes a handle. The caller releases its node, and closes fd unless it
// is negative, which means that the handle is still in use.
func (hs *handles) take(id uint64) (h *handle, fd int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if id == 0 || id > uint64(len(hs.all)) || hs.all[id-1] == nil {
		return nil, -1
	}
	h = hs.all[id-1]
	hs.all[id-1] = nil
	hs.free = append(hs.free, id)
	return h, h.close()
}

// close returns the descriptor to close, or -1. handles.mu is held.
func (h *handle) close() int {
	if h.closed {
		return -1
	}
	h.closed = true
	if h.uses > 0 {
		return -1
	}
	return h.fd
}

func (hs *handles) closeAll(files closing) { hs.closeIf(files, func(*handle) bool { return true }) }

// closeIf closes handles, whose numbers stay taken until the guest releases
// them. It adds the descriptors that are not in use to files.
func (hs *handles) closeIf(files closing, which func(*handle) bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h == nil || !which(h) {
			continue
		}
		if fd := h.close(); fd >= 0 {
			files.add(h.node.tree, fd)
		}
	}
}

// has reports whether there is such a handle. One that was closed counts until the
// guest releases it.
func (hs *handles) has(which func(*handle) bool) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.ContainsFunc(hs.all, func(h *handle) bool { return h != nil && which(h) })
}

// clear closes all handles and empties the table. It returns the handles, and the
// descriptors that are not in use.
func (hs *handles) clear() (all []*handle, fds []int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.all {
		if h == nil {
			continue
		}
		all = append(all, h)
		if fd := h.close(); fd >= 0 {
			fds = append(fds, fd)
		}
	}
	hs.all, hs.free = nil, nil
	return all, fds
}
