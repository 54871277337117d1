package wire

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	// NameMax is the longest name in bytes that a guest's kernel sends (fs/fuse/fuse_i.h,
	// FUSE_NAME_MAX). File systems that count UTF-16 units, such as vfat and CIFS, have
	// names of more than NAME_MAX bytes.
	NameMax = 1024

	pathMax = 4096 // PATH_MAX, including the final NUL
)

// Text takes a NUL-terminated string from the front of p.
func Text(p []byte) (s string, rest []byte, errno unix.Errno) {
	i := bytes.IndexByte(p, 0)
	switch {
	case i < 0:
		return "", nil, unix.EINVAL
	case i >= pathMax:
		return "", nil, unix.ENAMETOOLONG
	}
	return string(p[:i]), p[i+1:], 0
}

// Name takes the name of a directory entry from the front of p: one component,
// which must not lead out of the directory.
func Name(p []byte) (name string, rest []byte, errno unix.Errno) {
	name, rest, errno = Text(p)
	switch {
	case errno != 0:
		return "", nil, errno
	case len(name) > NameMax:
		return "", nil, unix.ENAMETOOLONG
	case name == "" || name == "." || name == ".." || bytes.IndexByte([]byte(name), '/') >= 0:
		return "", nil, unix.EINVAL
	}
	return name, rest, 0
}

// U64 reads a number at the front of p, which is that long.
func U64(p []byte) uint64 { return binary.NativeEndian.Uint64(p) }
