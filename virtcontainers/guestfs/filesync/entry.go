package filesync

import (
	"os"

	"golang.org/x/sys/unix"
)

// kind is the type of a file that can be copied.
type kind int

const (
	// unknown is a file that may be a directory or not: a call that was to turn
	// one into the other has failed.
	unknown kind = iota
	directory
	regular
	symlink
)

// entry is a file as a look has found it, or as the guest has it. Two are equal
// if there is nothing to send: for a directory mode and owner count, for a link
// its target.
type entry struct {
	kind           kind
	mode, uid, gid uint32
	size           int64
	mtime, ctime   unix.Timespec
	dev, ino       uint64
	link           string
	// doubt is set if it is not known whether the guest has it in this state.
	doubt bool
}

// tree has files by their paths relative to the root of the copy, which is "".
type tree map[string]entry

const modeBits = 0o7777

// entryOf makes an entry from the result of stat(2); special is the type's name
// if it cannot be copied. The caller reads a link's target.
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

// statOf calls fstat(2) on an open file.
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
