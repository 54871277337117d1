package passthrough

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

func (fs *FS) opendir(t *Thread, r *wire.Request) unix.Errno {
	if errno := fs.reserve(t); errno != 0 {
		return errno
	}
	defer fs.unreserve(t)
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
	id, errno := fs.keepHandle(t, &handle{fd: fd, node: n, dir: true})
	if errno != 0 {
		return errno
	}
	wire.Put(r, &fuse.OpenOut{Fh: id, OpenFlags: n.tree.dirFlags()})
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
	return fs.list(t, r, in, plainLength, func(_ *handle, e entry, left int) bool {
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
	return fs.list(t, r, in, plusLength, func(h *handle, e entry, left int) bool {
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
			e.ino = withDevice(e.ino, out.Ino)
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

// Entries are longer for the guest than the host's, and with attributes more so.
var (
	plainLength = lengths{usual: 1, most: 2}
	plusLength  = lengths{usual: 4, most: 7} // 152 bytes and a name, padded to 8, of 24
)

// lengths are how many times longer an entry is for the guest, rounded up.
type lengths struct{ usual, most int }

// list passes the entries of a directory to put, from the guest's offset, until
// put has no room. So few are read at once that usually all find room; the others
// are read again. All do where the directory cannot be moved back to the others.
func (fs *FS) list(t *Thread, r *wire.Request, in *fuse.ReadIn, longer lengths, put func(h *handle, e entry, left int) bool) unix.Errno {
	h, errno := fs.handles.use(in.Fh, true)
	if errno != 0 {
		return errno
	}
	defer fs.handles.done(h)
	if errno := fs.asReader(t, h.node, h.fd); errno != 0 {
		return errno
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	found, errno := h.seek(in.Offset)
	if errno != 0 {
		return errno
	}
	room := min(int(in.Size), r.Left())
	for {
		size := max((room-r.ReplyLen())/longer.usual, hostEntry)
		if exact := !seekable(in.Offset) || !seekable(h.pos); exact {
			size = (room - r.ReplyLen()) / longer.most
		}
		rest, errno := h.entries(t.dirs, size, r.ReplyLen() == 0)
		if errno != 0 && r.ReplyLen() == 0 {
			return errno
		}
		if errno != 0 || len(rest) == 0 {
			return 0
		}
		for len(rest) > 0 {
			var e entry
			e, rest = parseEntry(rest)
			h.pos = e.next
			if !found {
				found = e.next == in.Offset
				continue
			}
			if !put(h, e, room-r.ReplyLen()) {
				h.pos = lastOf(e, rest).next
				if r.ReplyLen() == 0 {
					return unix.EINVAL // no room even for one
				}
				return 0
			}
		}
	}
}

// seekable reports whether lseek(2) takes an offset: it takes no negative ones, as
// some NFS servers' cookies of 64 bits are.
func seekable(offset uint64) bool { return int64(offset) >= 0 }

// seek moves a directory to an offset, unless it is there. If it cannot, the
// directory is at its beginning, and found is false: the entries up to the one
// with that offset are to be skipped. h.mu is held.
func (h *handle) seek(offset uint64) (found bool, errno unix.Errno) {
	if offset == h.pos {
		return true, 0
	}
	to := offset
	if !seekable(offset) {
		to = 0
	}
	if _, err := unix.Seek(h.fd, int64(to), unix.SEEK_SET); err != nil {
		return false, errnoOf(err)
	}
	h.pos = to
	return to == offset, 0
}

// entries reads entries of size bytes into buf, and one even if it is longer, if it
// must. Else it fails with EINVAL. h.mu is held.
func (h *handle) entries(buf []byte, size int, must bool) ([]byte, unix.Errno) {
	n, err := unix.Getdents(h.fd, buf[:min(len(buf), size)])
	if must && errors.Is(err, unix.EINVAL) && size < hostEntry {
		n, err = unix.Getdents(h.fd, buf[:hostEntry])
	}
	return buf[:max(n, 0)], errnoOf(err)
}

// lastOf returns the last one of an entry and those after it.
func lastOf(e entry, rest []byte) entry {
	for len(rest) > 0 {
		e, rest = parseEntry(rest)
	}
	return e
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
