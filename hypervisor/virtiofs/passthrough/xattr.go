package passthrough

import (
	"bytes"
	"errors"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
)

// xattrMax is the longest value, and the longest list (XATTR_SIZE_MAX).
const xattrMax = 64 << 10

// The names trusted.* are for processes with CAP_SYS_ADMIN (xattr(7)), which an
// overlayfs in the guest needs for its upper directory. The host's own are not the
// guest's, and these threads could not set them: the guest's are stored under names
// that any owner of a file may use, and that a guest cannot use otherwise.
const (
	trustedNames = "trusted."
	storedNames  = "user.virtiofs."
)

// hostLabel is a file's label in the host's SELinux policy, which is no business of a
// guest's. Other names of security.* need CAP_SYS_ADMIN, which these threads lack. The
// kernel leaves this one to the policy, which judges the shim and not the container,
// and without a policy to the file's owner (selinux_inode_setxattr in
// security/selinux/hooks.c).
const hostLabel = "security.selinux"

// storedName returns an attribute's name on the host, or errno for one that is not
// the guest's.
func storedName(name string, errno unix.Errno) (string, unix.Errno) {
	switch {
	case strings.HasPrefix(name, trustedNames):
		return storedNames + name, 0
	case strings.HasPrefix(name, storedNames), name == hostLabel:
		return "", errno
	}
	return name, 0
}

// guestNames turns a list of the host's names, each with a NUL behind it, into the
// guest's, in place. trusted reports whether it has the names trusted.*.
func guestNames(list []byte, trusted bool) []byte {
	kept := list[:0]
	for name := range bytes.SplitAfterSeq(list, []byte{0}) {
		if own, isStored := bytes.CutPrefix(name, []byte(storedNames)); isStored {
			if !trusted || !bytes.HasPrefix(own, []byte(trustedNames)) {
				continue
			}
			name = own
		} else if string(name) == hostLabel+"\x00" {
			continue
		}
		kept = append(kept, name...)
	}
	return kept
}

// These calls take a path. The name of an O_PATH descriptor in the thread's
// working directory leads to the file itself, and opens nothing.

func (fs *FS) getxattr(t *Thread, r *wire.Request) unix.Errno {
	in, rest := wire.In[fuse.GetXAttrIn](r)
	name, _, errno := wire.Text(rest)
	if errno != 0 {
		return errno
	}
	if name, errno = storedName(name, unix.ENODATA); errno != 0 {
		return errno
	}
	return fs.xattr(t, r, in.Size, func(path string, value []byte) (int, error) { return unix.Getxattr(path, name, value) })
}

func (fs *FS) listxattr(t *Thread, r *wire.Request) unix.Errno {
	in, _ := wire.In[fuse.GetXAttrIn](r)
	if in == nil {
		return unix.EINVAL
	}
	trusted := r.Header().Uid == 0
	return fs.xattr(t, r, in.Size, func(path string, value []byte) (int, error) {
		all := t.dirs
		n, err := unix.Listxattr(path, all)
		if errors.Is(err, unix.ERANGE) {
			all = make([]byte, xattrMax)
			n, err = unix.Listxattr(path, all)
		}
		if err != nil {
			return 0, err
		}
		names := guestNames(all[:n], trusted)
		if len(value) > 0 && len(names) > len(value) {
			return 0, unix.ERANGE
		}
		copy(value, names)
		return len(names), nil
	})
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
	if name, errno = storedName(name, unix.EPERM); errno != 0 {
		return errno
	}
	n, fd, errno := fs.fileToChange(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	if name == fileCapabilities && !fs.allows(n.tree).Capabilities {
		return unix.EPERM
	}
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
	if name, errno = storedName(name, unix.ENODATA); errno != 0 {
		return errno
	}
	n, fd, errno := fs.fileToChange(t, r.Node())
	if errno != 0 {
		return errno
	}
	defer fs.leave(n)
	return errnoOf(unix.Removexattr(procName(fd), name))
}
