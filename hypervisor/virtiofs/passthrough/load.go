package passthrough

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Load replaces the state of an FS that has served no guest yet by what Save has
// written. Nothing may be served meanwhile. It blocks as long as the host's file
// system does, and as r; it ends between two of their calls when ctx has ended.
//
// Nodes are found by their names, as by lookups. One that is missing, or is
// another kind of file or another link, is stale from then on, and the guest's
// kernel looks it up again; a file that was open must be found. After an error the FS is as
// before. Its class is errdefs.ErrInvalidArgument for a malformed state.
func (fs *FS) Load(ctx context.Context, t *Thread, r io.Reader) error {
	l := &loader{fs: fs, t: t, gone: &tree{dead: true}}
	if err := l.begin(); err != nil {
		return err
	}
	err := l.load(ctx, &decoder{r: bufio.NewReader(r)})
	l.release()
	if err != nil {
		fs.reset()
	}
	return err
}

// loader loads one state. It holds every node until release, so that none is
// collected before its children and handles are known.
type loader struct {
	fs *FS
	t  *Thread
	// gone is a tree that is not there. Each node is in it until it is found.
	gone *tree
	// from is where the nodes were, by number-1.
	from []origin
}

// origin is where a node was. A parent of 0 means that it was gone already.
type origin struct {
	parent uint32
	tried  bool // the node was looked for, or will be, after its parents
	owner  user // set when it is found
}

// begin checks that the FS is new.
func (l *loader) begin() error {
	tb := &l.fs.nodes
	l.fs.handles.mu.Lock()
	open := len(l.fs.handles.all)
	l.fs.handles.mu.Unlock()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if known := tb.live(); known > rootID || open > 0 {
		return fmt.Errorf("load state of shared files: a guest knows %d files already, and has opened %d: %w", known-rootID, open, errdefs.ErrFailedPrecondition)
	}
	tb.byID, tb.free = tb.byID[:rootID], nil
	tb.lastTree++
	l.gone.id = tb.lastTree
	l.from = []origin{{tried: true}}
	return nil
}

// load reads everything before it looks for the first file.
func (l *loader) load(ctx context.Context, d *decoder) error {
	minor, flags := d.head()
	for n, ok := d.node(); ok; n, ok = d.node() {
		l.know(n)
	}
	var handles []savedHandle
	for h, ok := d.handle(l.fs.handles.limit); ok; h, ok = d.handle(l.fs.handles.limit) {
		handles = append(handles, h)
	}
	if err := d.end(); err != nil {
		return err
	}
	if err := l.check(minor, flags, handles); err != nil {
		return err
	}
	if err := l.findAll(ctx, handles); err != nil {
		return err
	}
	for _, h := range handles {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("open files again: %w", err)
		}
		if err := l.reopen(h); err != nil {
			return err
		}
	}
	l.fs.session.Store(newSession(minor, flags))
	return nil
}

// know adds a node that is not found yet.
func (l *loader) know(s savedNode) {
	tb := &l.fs.nodes
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for uint64(len(tb.byID)) < s.id-1 {
		tb.free = append(tb.free, uint32(len(tb.byID)))
		tb.byID = append(tb.byID, nil)
		l.from = append(l.from, origin{tried: true})
	}
	n := &node{id: s.id, key: key{tree: l.gone.id}, tree: l.gone, name: s.name, lookups: s.lookups, refs: 1, slot: -1, kind: s.kind, device: s.device}
	n.stamp.Store(s.stamp)
	tb.byID = append(tb.byID, n)
	tb.most = max(tb.most, tb.live())
	tb.savedDevices = max(tb.savedDevices, s.device)
	l.gone.nodes++
	l.from = append(l.from, origin{parent: uint32(s.parent), tried: s.kind == kindGone})
}

// known returns a node by its number, or nil. Load is the only one that changes
// the table.
func (l *loader) known(id uint64) *node {
	if id == 0 || id > uint64(len(l.fs.nodes.byID)) {
		return nil
	}
	return l.fs.nodes.byID[id-1]
}

// check checks that the records fit together, and that this FS serves what the
// guest has negotiated.
func (l *loader) check(minor, flags uint32, handles []savedHandle) error {
	if began := minor != 0 || flags != 0; began && (minor < oldestMinor || flags&needed != needed) {
		return fmt.Errorf("session of minor version %d with features %#x: %w", minor, flags, errState)
	}
	if extra := uint64(flags) &^ uint64(wanted); extra != 0 {
		return fmt.Errorf("the guest uses features %#x, which are not served: %w", extra, errdefs.ErrFailedPrecondition)
	}
	for i, o := range l.from {
		if !o.tried && l.known(uint64(o.parent)) == nil {
			return fmt.Errorf("node %d is below node %d, which is not there: %w", i+1, o.parent, errState)
		}
	}
	for _, h := range handles {
		if err := l.checkHandle(h); err != nil {
			return err
		}
	}
	return nil
}

// checkHandle checks that a handle is of a file that can be open.
func (l *loader) checkHandle(h savedHandle) error {
	n := l.known(h.node)
	if n == nil {
		return fmt.Errorf("handle %d is of node %d, which is not there: %w", h.id, h.node, errState)
	}
	want := uint16(unix.S_IFREG)
	if h.dir {
		want = unix.S_IFDIR
	}
	if !h.closed && n.kind != want {
		return fmt.Errorf("handle %d is of a file of kind %#o, want %#o: %w", h.id, n.kind, want, errState)
	}
	return nil
}

// findAll looks for all nodes; those that are open are first, because two
// numbers may lead to one file now, of which the second one becomes stale.
func (l *loader) findAll(ctx context.Context, handles []savedHandle) error {
	for _, h := range handles {
		if h.closed {
			continue
		}
		if err := l.find(ctx, l.known(h.node)); err != nil {
			return err
		}
	}
	for i := range l.from {
		if l.from[i].tried {
			continue
		}
		if err := l.find(ctx, l.fs.nodes.byID[i]); err != nil {
			return err
		}
	}
	return nil
}

// find looks for a node, and before it for its parents, unless that was done. A
// node below itself, or too deep, is not found.
func (l *loader) find(ctx context.Context, n *node) error {
	var way []*node
	for o := &l.from[n.id-1]; !o.tried && len(way) <= maxDepth; o = &l.from[n.id-1] {
		o.tried = true
		way = append(way, n)
		n = l.known(uint64(o.parent))
	}
	for _, n := range slices.Backward(way) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("find files again: %w", err)
		}
		if errno := l.findBelow(n, l.known(uint64(l.from[n.id-1].parent))); errno != 0 && !absent(errno) {
			return fmt.Errorf("find %q again: %w", l.path(n), errno)
		}
	}
	return nil
}

// findBelow looks for a node in its directory.
func (l *loader) findBelow(n, parent *node) unix.Errno {
	if parent.tree == l.gone || !parent.isDir() {
		return unix.ENOENT
	}
	return l.asOwner(parent, func() unix.Errno { return l.findIn(n, parent) })
}

// asOwner is orAsOwner with the owner of a node that was found.
func (l *loader) asOwner(n *node, do func() unix.Errno) unix.Errno {
	return l.fs.orAsOwner(l.t, n, func() user { return l.from[n.id-1].owner }, do)
}

// findIn is findBelow for a parent that is a directory.
func (l *loader) findIn(n, parent *node) unix.Errno {
	pfd, errno := l.fs.fd(l.t, parent)
	if errno != 0 {
		return errno
	}
	defer l.fs.done(parent)
	fd, errno := l.fs.inspect(l.t, parent, pfd, n.name)
	if errno != 0 {
		return errno
	}
	if fd = l.settle(n, parent, fd); fd >= 0 {
		_ = unix.Close(fd)
	}
	return 0
}

// settle makes a node the file that t.stx describes, unless that is another
// kind of file, another link, or has a number already. fd is as of intern; settle returns it if
// it is not kept.
func (l *loader) settle(n, parent *node, fd int) (spare int) {
	tb, stx := &l.fs.nodes, &l.t.stx
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if kindOf(stx) != n.kind || stampOf(stx) != n.stamp.Load() {
		return fd
	}
	tree := l.fs.treeBelow(parent, n.name, stx)
	k := key{ino: stx.Ino, tree: tree.id, dev: devOf(stx)}
	if tb.byKey[k] != nil {
		return fd
	}
	n.key, n.tree, n.parent = k, tree, parent
	l.from[n.id-1].owner = user{stx.Uid, stx.Gid}
	parent.tree.keepDevice(k.dev, n.device)
	n.device = tb.device(parent, k, n.kind)
	tb.byKey[k] = n
	parent.refs++
	tree.nodes++
	l.gone.nodes--
	return tb.keepOpen(n, fd)
}

// reopen opens a handle again.
func (l *loader) reopen(s savedHandle) error {
	n := l.known(s.node)
	h := &handle{fd: -1, node: n, dir: s.dir, flags: s.flags, closed: s.closed}
	if !s.closed {
		fd := -1
		errno := l.asOwner(n, func() (errno unix.Errno) {
			fd, errno = l.open(n, s)
			return errno
		})
		switch {
		case absent(errno):
			return fmt.Errorf("open %q again, which the guest has open: it is not in the share, or is another kind of file: %w", l.path(n), errdefs.ErrNotFound)
		case errno != 0:
			return fmt.Errorf("open %q again, which the guest has open: %w", l.path(n), errno)
		}
		h.fd = fd
	}
	l.fs.nodes.mu.Lock()
	n.refs++
	l.fs.nodes.mu.Unlock()
	l.fs.handles.put(s.id, h)
	return nil
}

func (l *loader) open(n *node, s savedHandle) (int, unix.Errno) {
	at, errno := l.fs.fd(l.t, n)
	if errno != 0 {
		return -1, errno
	}
	defer l.fs.done(n)
	if s.dir {
		return openDir(at)
	}
	// What it does to the file was done when the guest opened it.
	return l.fs.openAs(l.t, nil, n, at, s.flags&^unix.O_TRUNC)
}

// put gives a handle its number, above all that are taken.
func (hs *handles) put(id uint64, h *handle) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for uint64(len(hs.all)) < id-1 {
		hs.all = append(hs.all, nil)
		hs.free = append(hs.free, uint64(len(hs.all)))
	}
	hs.all = append(hs.all, h)
}

// path returns where a node was.
func (l *loader) path(n *node) string {
	where := ""
	for range maxDepth {
		if n == nil || n.id == rootID {
			break
		}
		where = path.Join(n.name, where)
		n = l.known(uint64(l.from[n.id-1].parent))
	}
	return where
}

// release ends the loader's hold on the nodes, and removes those that the guest
// does not know.
func (l *loader) release() {
	tb := &l.fs.nodes
	tb.mu.Lock()
	var fds []int
	for i := rootID; i < len(l.from); i++ {
		n := tb.byID[i]
		if n == nil {
			continue
		}
		if n.tree == l.gone {
			n.name = ""
		}
		n.refs--
		fds = tb.collect(n, fds)
	}
	tb.mu.Unlock()
	closeAll(fds)
}
