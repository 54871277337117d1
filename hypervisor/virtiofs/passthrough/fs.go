package passthrough

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// Options describe what is served.
type Options struct {
	// Root is the share's root directory, opened with O_PATH. The caller owns
	// it, and must keep it open as long as the FS.
	Root *os.File
	// Policy returns how a mount at a path of the share ("" for the share's own
	// root) is cached. It is called once for each, with a lock held. If one is Direct whose
	// files the guest maps, the share's own must be: it can then map files of which it
	// caches nothing.
	Policy func(path string) Policy
	// Special returns what the guest may make in a mount at a path of the share; nil allows
	// nothing. It is called for each attempt, without a lock.
	Special func(path string) Special
	// Requests returns how many requests of a guest that begins a session may be
	// unanswered; nil is for MaxRequests.
	Requests func() int
	// Descriptors is the most descriptors that the FS may have open. 0 is half
	// of the process's limit.
	Descriptors int
}

// MaxRequests bounds the requests that a server takes before it has answered others.
const MaxRequests = 512

// FS is the share as a guest sees it.
type FS struct {
	opts    Options
	own     *tree // the share's
	nodes   table
	handles handles
	retries retries
	session atomic.Uint64 // newSession
}

// descriptorsOf returns how many descriptors an FS uses by default, of those that the
// process may have. The guest may have half of them open.
func descriptorsOf(limit uint64) int { return int(min(limit/2, 1<<16)) }

// New makes an FS, which serves one guest and has no threads.
func New(opts Options) (*FS, error) {
	if opts.Descriptors == 0 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("read the limit of open files: %w", err)
		}
		opts.Descriptors = descriptorsOf(limit.Cur)
	}
	if opts.Requests == nil {
		opts.Requests = func() int { return MaxRequests }
	}
	if opts.Special == nil {
		opts.Special = func(string) Special { return Special{} }
	}
	fs := &FS{opts: opts, handles: handles{limit: opts.Descriptors / 2}}
	fs.nodes = table{byKey: map[key]*node{}, trees: map[uint64]*tree{}, slots: newSlots(opts.Descriptors / 4)}
	fd, err := unix.FcntlInt(opts.Root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root of share: %w", err)
	}
	var stx unix.Statx_t
	if errno := statFD(fd, &stx); errno != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("inspect root of share: %w", errno)
	}
	fs.nodes.uniqueMounts = stx.Mask&unix.STATX_MNT_ID_UNIQUE != 0
	t := &tree{id: shareTree, mount: stx.Mnt_id, policy: opts.Policy("")}
	fs.own, fs.nodes.trees[t.mount] = t, t
	root := fs.nodes.add(key{ino: stx.Ino, dev: devOf(&stx)}, t, nil, "", unix.S_IFDIR)
	fs.nodes.slots.insert(root, fd)
	fs.nodes.slots.pin(root)
	return fs, nil
}

// Close closes all descriptors, and waits for that within ctx; an error says that a file
// system of the host hangs. Nothing may be served any more.
func (fs *FS) Close(ctx context.Context) error {
	files := closing{}
	fs.handles.closeAll(files)
	tb := &fs.nodes
	tb.mu.Lock()
	tb.lender.stop()
	tb.sweeper.stop()
	for i := range tb.slots.all {
		if s := &tb.slots.all[i]; s.node != nil {
			files.add(s.node.tree, s.fd)
		}
	}
	tb.slots, tb.byID, tb.byKey = newSlots(0), nil, nil
	tb.mu.Unlock()
	return files.within(ctx)
}

// Tree returns a number for the mount that a request is about: requests of one
// mount may hang together. It is 0 for the share's own tree, and for unknown
// nodes.
func (fs *FS) Tree(id uint64) uint32 {
	tb := &fs.nodes
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if id == 0 || id > uint64(len(tb.byID)) || tb.byID[id-1] == nil {
		return 0
	}
	return tb.byID[id-1].tree.id
}

// Serve carries out a request. It blocks as long as the host's file system
// does. On success (0) r has the reply.
func (fs *FS) Serve(t *Thread, r *wire.Request) unix.Errno {
	op := r.Op()
	if op >= wire.MaxOp || operations[op] == nil {
		return unix.ENOSYS
	}
	errno := fs.serve(t, r, root)
	if full(errno) && fs.nodes.awaitFreed() {
		r.Cut(0)
		errno = fs.serve(t, r, root)
	}
	if h := r.Header(); refused(errno) && h.Uid != 0 && fs.mayServeAsSender(t, r.Node()) {
		r.Cut(0)
		errno = fs.serve(t, r, user{h.Uid, h.Gid})
	}
	return errno
}

// serve carries out a request of a kind that is served, as a user.
func (fs *FS) serve(t *Thread, r *wire.Request, as user) unix.Errno {
	return t.serveAs(as, func() unix.Errno {
		return uninterrupted(r, func() unix.Errno { return operations[r.Op()](fs, t, r) })
	})
}

// operation serves one kind of request.
type operation func(fs *FS, t *Thread, r *wire.Request) unix.Errno

// operations has the operations that are served, by opcode.
var operations = [wire.MaxOp]operation{
	wire.Init:          (*FS).init,
	wire.Destroy:       (*FS).destroy,
	wire.Lookup:        (*FS).lookup,
	wire.Forget:        (*FS).forget,
	wire.BatchForget:   (*FS).batchForget,
	wire.Interrupt:     func(*FS, *Thread, *wire.Request) unix.Errno { return 0 },
	wire.Getattr:       (*FS).getattr,
	wire.Statx:         (*FS).statx,
	wire.Setattr:       (*FS).setattr,
	wire.Statfs:        (*FS).statfs,
	wire.Syncfs:        (*FS).syncfs,
	wire.Readlink:      (*FS).readlink,
	wire.Symlink:       (*FS).symlink,
	wire.Mknod:         (*FS).mknod,
	wire.Mkdir:         (*FS).mkdir,
	wire.Link:          (*FS).link,
	wire.Create:        (*FS).create,
	wire.Tmpfile:       (*FS).tmpfile,
	wire.Unlink:        (*FS).unlink,
	wire.Rmdir:         (*FS).rmdir,
	wire.Rename:        (*FS).rename,
	wire.Rename2:       (*FS).rename2,
	wire.Open:          (*FS).open,
	wire.Release:       (*FS).release,
	wire.Read:          (*FS).read,
	wire.Write:         (*FS).write,
	wire.Flush:         (*FS).flush,
	wire.Fsync:         (*FS).fsync,
	wire.Fsyncdir:      (*FS).fsync,
	wire.Fallocate:     (*FS).fallocate,
	wire.Lseek:         (*FS).lseek,
	wire.CopyFileRange: (*FS).copyFileRange,
	wire.Opendir:       (*FS).opendir,
	wire.Releasedir:    (*FS).release,
	wire.Readdir:       (*FS).readdir,
	wire.Readdirplus:   (*FS).readdirplus,
	wire.Getxattr:      (*FS).getxattr,
	wire.Listxattr:     (*FS).listxattr,
	wire.Setxattr:      (*FS).setxattr,
	wire.Removexattr:   (*FS).removexattr,
}
