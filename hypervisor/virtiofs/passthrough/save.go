package passthrough

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// savePortion is how many nodes are encoded while table.mu is held.
const savePortion = 1024

// Save writes the state to w. Nothing may be served meanwhile. It blocks as
// long as the host's file system does, and as w; it ends between two of their
// calls when ctx has ended.
//
// If the guest has a file open that is no longer found under its name, the
// error is errdefs.ErrFailedPrecondition, and names the file: it could not be
// opened again. What the guest only knows may be gone; then it stays so.
func (fs *FS) Save(ctx context.Context, t *Thread, w io.Writer) error {
	handles := fs.handles.list()
	if err := fs.checkNames(ctx, t, handles); err != nil {
		return err
	}
	e := &encoder{w: w}
	e.head(fs.session.Load())
	if err := fs.saveNodes(ctx, e); err != nil {
		return err
	}
	for id, h := range handles {
		if h == nil {
			continue
		}
		e.handle(savedHandle{id: uint64(id + 1), node: h.node.id, flags: h.flags, dir: h.dir, closed: h.closed})
	}
	e.end()
	return e.flush()
}

// list returns copies of the handles, by number-1, without those that are free. One of a
// passing file is closed.
func (hs *handles) list() []*handle {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	all := make([]*handle, len(hs.all))
	for i, h := range hs.all {
		if h != nil {
			all[i] = &handle{fd: h.fd, node: h.node, dir: h.dir, flags: h.flags, closed: h.closed || h.node.tree.policy.Passing}
		}
	}
	return all
}

func (fs *FS) saveNodes(ctx context.Context, e *encoder) error {
	tb := &fs.nodes
	for at, more := rootID, true; more; at += savePortion {
		tb.mu.Lock()
		end := min(at+savePortion, len(tb.byID))
		for _, n := range tb.byID[min(at, end):end] {
			if n != nil {
				e.node(tb.saved(n))
			}
		}
		more = end < len(tb.byID)
		tb.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("save nodes: %w", err)
		}
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.end()
	return nil
}

// saved returns a node's record. The caller holds mu.
func (tb *table) saved(n *node) savedNode {
	s := savedNode{id: n.id, lookups: n.lookups}
	if tb.findable(n) && !n.tree.policy.Passing {
		s.kind, s.device, s.stamp, s.parent, s.name = n.kind, n.device, n.stamp.Load(), n.parent.id, n.name
	}
	return s
}

// findable reports whether a node other than the root may be found by its name.
// The caller holds mu.
func (tb *table) findable(n *node) bool {
	return n.parent != nil && n.name != "" && !n.tree.dead && tb.byKey[n.key] == n
}

// checkNames checks that each open file, and each directory on the way to it,
// is found under its name.
func (fs *FS) checkNames(ctx context.Context, t *Thread, handles []*handle) error {
	checked := map[*node]bool{}
	for _, h := range handles {
		if h == nil || h.closed {
			continue
		}
		for n := h.node; n.id != rootID && !checked[n]; {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("check names of open files: %w", err)
			}
			checked[n] = true
			var parent *node
			errno := fs.orAsOwner(t, n, h.owner, func() (errno unix.Errno) {
				parent, errno = fs.checkName(t, n)
				return errno
			})
			switch {
			case absent(errno):
				return fmt.Errorf("%q is open, and was deleted or replaced, so that it cannot be opened again by its name: %w",
					fs.openPath(h), errdefs.ErrFailedPrecondition)
			case errno != 0:
				return fmt.Errorf("find %q by its name: %w", fs.openPath(h), errno)
			}
			n = parent
		}
	}
	return nil
}

// owner returns the owner of an open file, root if that is not known.
func (h *handle) owner() user { return ownerOf(h.fd) }

// absent reports whether an error means that a file is not where it was.
func absent(errno unix.Errno) bool {
	return errno == unix.ENOENT || errno == unix.ENOTDIR || errno == unix.ESTALE
}

// checkName finds a node by its name, and returns its parent.
func (fs *FS) checkName(t *Thread, n *node) (*node, unix.Errno) {
	tb := &fs.nodes
	tb.mu.Lock()
	parent, name := n.parent, n.name
	if !tb.findable(n) {
		tb.mu.Unlock()
		return nil, unix.ENOENT
	}
	parent.refs++
	tb.mu.Unlock()
	defer tb.put(parent)
	return parent, fs.statBelow(t, n, parent, name)
}

// openPath returns an open file's path in the share, as the kernel knows it: of
// a deleted one, where it was.
func (fs *FS) openPath(h *handle) string {
	link := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(unix.AT_FDCWD, procName(h.fd), link)
	if err != nil {
		fs.nodes.mu.Lock()
		defer fs.nodes.mu.Unlock()
		return pathOf(h.node)
	}
	return strings.TrimPrefix(strings.TrimSuffix(string(link[:n]), " (deleted)"), "/")
}
