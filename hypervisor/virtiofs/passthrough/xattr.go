package passthrough

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// xattrMax is the longest value, and the longest list (XATTR_SIZE_MAX).
const xattrMax = 64 << 10

// These calls take a path. The name of an O_PATH descriptor in the thread's
// working directory leads to the file itself, and opens nothing.

func (fs *FS) getxattr(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.GetXAttrIn](r)
	name, _, errno := wire.Text(rest)
	if errno != 0 {
		return errno
	}
	return fs.xattr(t, r, in.Size, func(path string, value []byte) (int, error) { return unix.Getxattr(path, name, value) })
}

func (fs *FS) listxattr(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.GetXAttrIn](r)
	if in == nil {
		return unix.EINVAL
	}
	return fs.xattr(t, r, in.Size, unix.Listxattr)
}

// xattr replies with a value, or with its length if the guest's size is 0.
func (fs *FS) xattr(t *Thread, r *wire.Request, size uint32, get func(path string, value []byte) (int, error)) unix.Errno {
	n, fd, errno := fs.file(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	if size == 0 {
		k, err := get(procName(fd), nil)
		if err != nil {
			return errnoOf(err)
		}
		wire.Put(r, &fuse.GetXAttrOut{Size: uint32(k)})
		return 0
	}
	value := make([]byte, min(size, xattrMax))
	k, err := get(procName(fd), value)
	if err != nil {
		return errnoOf(err)
	}
	r.PutBytes(value[:k])
	return 0
}

func (fs *FS) setxattr(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.SetXAttrIn](r)
	name, rest, errno := wire.Text(rest)
	if errno != 0 {
		return errno
	}
	if uint64(in.Size) > uint64(len(rest)) || in.Size > xattrMax {
		return unix.EINVAL
	}
	n, fd, errno := fs.fileToChange(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	if in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
		if errno := t.asWriter(r.Header()); errno != 0 {
			return errno
		}
	}
	return errnoOf(unix.Setxattr(procName(fd), name, rest[:in.Size], int(in.Flags)))
}

func (fs *FS) removexattr(t *Thread, r *wire.Request) unix.Errno {
	_, rest := wire.In[fuse.InHeader](r)
	name, _, errno := wire.Text(rest)
	if errno != 0 {
		return errno
	}
	n, fd, errno := fs.fileToChange(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	return errnoOf(unix.Removexattr(procName(fd), name))
}
