package passthrough

import (
	"errors"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser"
	"github.com/katabox/katabox/hypervisor/virtiofs/contain"
)

// Thread is one serving thread's own state. Only that thread uses it, which
// contain.Enter has confined: its working directory is /proc/self/fd.
type Thread struct {
	uid, gid  uint32
	umask     uint32
	effective uint64
	server    user // what asServer makes it: root, but within serveAs

	// reserved is set while its request has a place for a handle (handle.go).
	reserved bool

	stx     unix.Statx_t
	scratch vhostuser.Scratch
	dirs    []byte
}

// NewThread returns the state of a thread that was just confined.
func NewThread() *Thread {
	return &Thread{effective: contain.Capabilities, dirs: make([]byte, dirBuffer)}
}

const (
	dirBuffer = 16 << 10

	fsetid      = uint64(1) << unix.CAP_FSETID
	keepSpecial = contain.Capabilities
	// dropSpecial makes the kernel clear set-user-ID and set-group-ID bits as
	// it does for an unprivileged user.
	dropSpecial = contain.Capabilities &^ fsetid
)

// become makes the thread act as a user and a group on files, with the given
// capabilities. The guest's kernel has already checked permissions, so
// CAP_DAC_OVERRIDE stays. It costs nothing if nothing changes.
func (t *Thread) become(uid, gid uint32, caps uint64) unix.Errno {
	if t.gid != gid {
		if errno := setID(unix.SYS_SETFSGID, gid); errno != 0 {
			return errno
		}
		t.gid = gid
	}
	if t.uid != uid {
		if errno := setID(unix.SYS_SETFSUID, uid); errno != 0 {
			return errno
		}
		// The kernel has dropped or restored the file capabilities
		// (capabilities(7), "Effect of user ID changes").
		t.uid, t.effective = uid, 0
	}
	if t.effective != caps {
		if err := contain.SetEffective(caps); err != nil {
			return errnoOf(err)
		}
		t.effective = caps
	}
	return 0
}

// setID changes one of the thread's ids. These calls report no failure, but
// return the id in use; for -1 they change nothing (setfsuid(2)).
func setID(call uintptr, id uint32) unix.Errno {
	if id == ^uint32(0) {
		return unix.EINVAL
	}
	_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
	if now, _, _ := unix.RawSyscall(call, uintptr(^uint32(0)), 0, 0); uint32(now) != id {
		return unix.EPERM
	}
	return 0
}

// user is a user and a group.
type user struct{ uid, gid uint32 }

// root is the usual user for the server's own work.
var root user

// serveAs does something with a user as the server, and makes the thread root again.
func (t *Thread) serveAs(u user, do func() unix.Errno) unix.Errno {
	t.server = u
	errno := t.asServer()
	if errno == 0 {
		errno = do()
	}
	t.server = root
	if back := t.asServer(); errno == 0 {
		errno = back
	}
	return errno
}

// asServer is become for the server's own work.
func (t *Thread) asServer() unix.Errno { return t.become(t.server.uid, t.server.gid, keepSpecial) }

// asWriter makes the thread act as a request's sender, without CAP_FSETID. The
// kernel then clears set-user-ID and set-group-ID bits as it does for the
// sender; the latter may depend on the sender's group (fs/attr.c,
// setattr_should_drop_sgid).
func (t *Thread) asWriter(h *fuse.InHeader) unix.Errno { return t.become(h.Uid, h.Gid, dropSpecial) }

// asChanger is asWriter for requests that do not say whether their sender has
// CAP_FSETID. Root is assumed to have it.
func (t *Thread) asChanger(h *fuse.InHeader) unix.Errno {
	if h.Uid == 0 {
		return 0
	}
	return t.asWriter(h)
}

// asNamer gives a file a name: as the server, and where that has no mapping as the
// request's sender. In an idmapped mount the kernel refuses a new name to such a user
// before anything is changed (fs/namei.c, may_create).
func (t *Thread) asNamer(h *fuse.InHeader, do func() unix.Errno) unix.Errno {
	errno := do()
	if errno != unix.EOVERFLOW {
		return errno
	}
	if errno := t.become(h.Uid, h.Gid, keepSpecial); errno != 0 {
		return errno
	}
	return do()
}

// withUmask sets the umask for making files, which default ACLs override.
func (t *Thread) withUmask(mask uint32) {
	if t.umask != mask&0o777 {
		t.umask = mask & 0o777
		unix.Umask(int(t.umask))
	}
}

// procName returns a path for a descriptor, relative to the thread's working
// directory, for calls that take a path.
func procName(fd int) string { return strconv.Itoa(fd) }

// errnoOf returns the error number of a system call's error, or EIO.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	}
	return unix.EIO
}
