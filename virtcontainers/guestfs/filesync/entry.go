package filesync

import (
	"os"

	"golang.org/x/sys/unix"
)

// kind is what a file is, as far as it can be copied.
type kind int

const (
	// unknown is a file that may be a directory or something else: a call has
	// failed that was to make one of the other.
	unknown kind = iota
	directory
	regular
	symlink
)

// entry is a file as a look has found it, or as the guest has it. Two are equal
// when nothing is to be sent: of a directory mode and owner count, of a link
// where it leads.
type entry struct {
	kind           kind
	mode, uid, gid uint32
	size           int64
	mtime, ctime   unix.Timespec
	dev, ino       uint64
	link           string
	// doubt: whether the guest has it so is not known.
	doubt bool
}

// tree is files by their path from the root of what is copied, which is "".
type tree map[string]entry

const modeBits = 0o7777

// entryOf makes an entry of what stat(2) says; special says what cannot be
// copied, in a word. A link's target is the caller's to read.
func entryOf(st *unix.Stat_t) (e entry, special string) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return entry{kind: directory, mode: st.Mode & modeBits, uid: st.Uid, gid: st.Gid}, ""
	case unix.S_IFLNK:
		return entry{kind: symlink}, ""
	case unix.S_IFREG:
		return entry{
			kind: regular, mode: st.Mode & modeBits, uid: st.Uid, gid: st.Gid, size: st.Size,
			mtime: st.Mtim, ctime: st.Ctim, dev: st.Dev, ino: st.Ino,
		}, ""
	case unix.S_IFSOCK:
		return entry{}, "UNIX socket"
	case unix.S_IFIFO:
		return entry{}, "FIFO"
	default:
		return entry{}, "device node"
	}
}

// statOf looks at an open file.
func statOf(f *os.File) (st unix.Stat_t, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return st, err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.Fstat(int(fd), &st) })
	if err == nil && failed != nil {
		err = &os.PathError{Op: "fstat", Path: f.Name(), Err: failed}
	}
	return st, err
}
