package passthrough

import (
	"bytes"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (fs *FS) opendir(t *Thread, r *wire.Request) unix.Errno {
	n, path, errno := fs.dir(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.done(n)
	fd, errno := openDir(path)
	if errno != 0 {
		fs.nodes.put(n)
		return errno
	}
	id, errno := fs.keepHandle(&handle{fd: fd, node: n, dir: true})
	if errno != 0 {
		return errno
	}
	wire.Put(r, &fuse.OpenOut{Fh: id, OpenFlags: n.tree.openFlags(true, 0)})
	return 0
}

// openDir opens a directory that is open with O_PATH for reading.
func openDir(path int) (int, unix.Errno) {
	fd, err := unix.Open(procName(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, errnoOf(err)
}

// direntLen is the length of fuse.h's fuse_dirent, without the name.
const direntLen = 24

func (fs *FS) readdir(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.ReadIn](r)
	if in == nil {
		return unix.EINVAL
	}
	return fs.list(t, r, in, 1, func(_ *handle, e entry, left int) bool {
		if e.length() > left {
			return false
		}
		e.put(r)
		return true
	})
}

func (fs *FS) readdirplus(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.ReadIn](r)
	if in == nil {
		return unix.EINVAL
	}
	return fs.list(t, r, in, plusFactor, func(h *handle, e entry, left int) bool {
		var out fuse.EntryOut
		if int(unsafe.Sizeof(out))+e.length() > left {
			return false
		}
		if e.name != "." && e.name != ".." {
			// An entry that has disappeared meanwhile is listed without a node;
			// the guest looks it up if needed.
			if fs.entry(t, h.node, h.fd, e.name, &out) != 0 {
				out = fuse.EntryOut{}
			}
		}
		wire.Put(r, &out)
		e.put(r)
		return true
	})
}

// entry is one name of a directory.
type entry struct {
	ino, next uint64
	kind      uint8
	name      string
}

// length returns its length for the guest: names are padded to 8 bytes.
func (e entry) length() int { return (direntLen + len(e.name) + 7) &^ 7 }

func (e entry) put(r *wire.Request) {
	head := struct {
		ino, off      uint64
		namelen, kind uint32
	}{e.ino, e.next, uint32(len(e.name)), uint32(e.kind)}
	wire.Put(r, &head)
	r.PutBytes([]byte(e.name))
	var pad [8]byte
	r.PutBytes(pad[:e.length()-direntLen-len(e.name)])
}

// hostEntry is the longest entry that getdents64(2) gives a guest (parseEntry), in bytes.
const hostEntry = (nameAt + wire.NameMax + 1 + 7) &^ 7

// nameAt is where the name is in such an entry.
const nameAt = 19

// plusFactor is roughly how many times longer an entry with attributes is than
// the host's without.
const plusFactor = 4

// list passes the entries of a directory to put, from the guest's offset, until
// put has no room. An entry is factor times as long for the guest as for the
// host, so only few that were read find no room and are read again.
func (fs *FS) list(t *Thread, r *wire.Request, in *fuse.ReadIn, factor int, put func(h *handle, e entry, left int) bool) unix.Errno {
	h, errno := fs.handles.use(in.Fh, true)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, err := unix.Seek(h.fd, int64(in.Offset), unix.SEEK_SET); err != nil {
		return errnoOf(err)
	}
	room := min(int(in.Size), r.Left())
	for {
		n, err := unix.Getdents(h.fd, t.dirs[:min(len(t.dirs), max((room-r.ReplyLen())/factor, hostEntry))])
		if err != nil && r.ReplyLen() == 0 {
			return errnoOf(err)
		}
		if err != nil || n == 0 {
			return 0
		}
		for rest := t.dirs[:n]; len(rest) > 0; {
			var e entry
			e, rest = parseEntry(rest)
			if !put(h, e, room-r.ReplyLen()) {
				if r.ReplyLen() == 0 {
					return unix.EINVAL // no room even for one
				}
				return 0
			}
		}
	}
}

// parseEntry parses one entry of getdents64(2)'s result.
func parseEntry(p []byte) (e entry, rest []byte) {
	length := int(p[16]) | int(p[17])<<8
	name := p[nameAt:length]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return entry{ino: wire.U64(p), next: wire.U64(p[8:]), kind: p[18], name: string(name)}, p[length:]
}
