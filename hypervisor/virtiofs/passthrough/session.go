package passthrough

import (
	"encoding/binary"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

const (
	// The protocol version of this package: 7.39, Linux 6.6; a client makes
	// newer requests only if they were negotiated. The oldest that is served is
	// 7.31, Linux 5.4, the first with virtio-fs.
	protocolMajor, protocolMinor, oldestMinor = 7, 39, 31

	maxWrite = 1 << 20
	maxPages = maxWrite / 4096
)

// background returns how many requests for pages a guest's kernel may make that are not
// answered, those that read ahead and write back, of all the requests that it may make.
// It counts them for all mounts of the share, and none reads a page when there are so many
// (fs/fuse/dev.c, fuse_block_alloc). So a mount that hangs is to need many for that, and
// they are to leave room for the requests that are not about pages.
func background(requests int) uint16 { return uint16(max(requests*3/4, 1)) }

// wanted are the features that are accepted if the guest offers them (fuse.h,
// "INIT request/reply flags"). Locks are not among them: the guest's kernel
// handles those of its own processes.
const wanted = fuse.CAP_ASYNC_READ | fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_BIG_WRITES | fuse.CAP_DONT_MASK |
	fuse.CAP_AUTO_INVAL_DATA | fuse.CAP_READDIRPLUS | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ASYNC_DIO |
	fuse.CAP_PARALLEL_DIROPS | fuse.CAP_POSIX_ACL | fuse.CAP_MAX_PAGES | fuse.CAP_CACHE_SYMLINKS |
	fuse.CAP_SUBMOUNTS | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_SETXATTR_EXT | fuse.CAP_INIT_EXT

// wantedToMap is likewise, of the upper 32 flags, for a share whose files are not cached: its
// guest may map them for all the same (Linux 6.6). Others keep the refusal for the files
// that must not be mapped so (appendsOnly).
const wantedToMap = fuse.CAP_DIRECT_IO_ALLOW_MMAP >> 32

// needed are those without which the guest would misread a reply, or its
// requests would be misread.
const needed = fuse.CAP_SUBMOUNTS | fuse.CAP_DONT_MASK | fuse.CAP_SETXATTR_EXT

// shortInit is FUSE_INIT as clients without CAP_INIT_EXT send it.
type shortInit struct {
	fuse.InHeader
	Major, Minor, MaxReadAhead, Flags uint32
}

// init begins a session. A rebooted guest begins another one, and has forgotten
// everything.
func (fs *FS) init(_ *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[shortInit](r)
	if in == nil {
		return unix.EINVAL
	}
	if in.Major != protocolMajor || in.Minor < oldestMinor {
		return unix.EPROTO
	}
	if in.Flags&needed != needed {
		return unix.EPROTO
	}
	fs.reset()
	fs.session.Store(newSession(in.Minor, in.Flags&wanted))
	pages := background(fs.opts.Requests())
	wire.Put(r, &fuse.InitOut{
		Major: protocolMajor, Minor: protocolMinor, MaxReadAhead: in.MaxReadAhead, Flags: in.Flags & wanted,
		MaxBackground: pages, CongestionThreshold: background(int(pages)),
		MaxWrite: maxWrite, TimeGran: 1, MaxPages: maxPages, Flags2: fs.upperFlags(in, rest),
	})
	return 0
}

// upperFlags returns the upper 32 flags that are accepted; rest follows in.
func (fs *FS) upperFlags(in *shortInit, rest []byte) uint32 {
	if in.Flags&fuse.CAP_INIT_EXT == 0 || len(rest) < 4 || !fs.own.policy.Direct {
		return 0
	}
	return binary.NativeEndian.Uint32(rest) & wantedToMap
}

func (fs *FS) destroy(*Thread, *wire.Request) unix.Errno {
	fs.reset()
	return 0
}

// newSession packs what a guest has negotiated, its minor version and the
// features in use, into a number; 0 is no session.
func newSession(minor, flags uint32) uint64 { return uint64(minor)<<32 | uint64(flags) }

// reset removes everything that a guest knew and had open.
func (fs *FS) reset() {
	fs.session.Store(0)
	open, fds := fs.handles.clear() // at once: other threads open files meanwhile
	closeAll(fds)
	for _, h := range open {
		fs.nodes.put(h.node)
	}
	fs.nodes.forgetAll()
}
