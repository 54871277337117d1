package storage

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// identity is what two bind mounts of directories must have in common to be one in
// the share. It is that of a directory while a bind of it is in the share, which keeps
// its file system and its inode: the kernel gives their numbers to no others.
type identity struct {
	// major, minor, root and inode are the directory: its file system, its path and
	// its number there. The number alone is not enough, as some file systems (FUSE,
	// network) let a server choose it.
	major, minor int
	root         string
	inode        uint64
	// options are those of the host's mount that the directory was found in, whose
	// copy the bind is.
	options string
	// recursive is set if the mounts below belong to it, slave if the host's later
	// ones do, which come to those peers.
	recursive, slave bool
	peers            string
	// below are the mounts below the directory that no propagation keeps like the
	// host's.
	below string
	// access is set for a read-only bind that may have mounts below it: the guest
	// cannot distinguish these, so that the host enforces it for all of its users.
	access string
}

// Values of identity.access. With accessTop the mounts below may be written to.
const (
	accessTop = "ro"
	accessAll = "rro"
)

// hostMounts is the host's mount table.
type hostMounts []*mountinfo.Info

// readHostMounts reads the mount table of the calling process.
func readHostMounts() (hostMounts, error) {
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return list, nil
}

// openSource opens the source of a bind as cloneMount does.
func openSource(source string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotCommon, err)
	}
	return os.NewFile(uintptr(fd), source), nil
}

// identified is the source of a bind that may be in common, and its identity.
type identified struct {
	opened
	id identity
}

// open opens the source of a bind and finds its identity. It fails with errNotCommon as
// openSource and identify do.
func (t hostMounts) open(b guestspec.Bind) (*identified, error) {
	source, err := openSource(b.Source)
	if err != nil {
		return nil, err
	}
	found := &identified{opened: opened{File: source}}
	if found.id, err = t.identify(source, b); err == nil {
		found.flags, err = keptFlags(source, b)
	}
	if err != nil {
		return nil, errors.Join(err, source.Close())
	}
	return found, nil
}

// errNotCommon says that a bind is for its container alone. If there is something wrong
// with its source, that shows when it is made.
var errNotCommon = errors.New("not a directory that several containers can have one bind of")

// identify returns the identity of a bind of source. It fails with errNotCommon if the
// source is not a directory, or the table does not say enough about it.
func (t hostMounts) identify(source *os.File, b guestspec.Bind) (identity, error) {
	m, dir, inode, err := t.find(source)
	if err != nil {
		return identity{}, err
	}
	rest, inside := below(m.Mountpoint, dir)
	if !inside || slices.Contains(strings.Split(m.Options, ","), "idmapped") { // the table does not say how
		return identity{}, errNotCommon
	}
	id := identity{major: m.Major, minor: m.Minor, root: path.Join(m.Root, rest), inode: inode, options: m.Options}
	if b.Slave && propagates(m) {
		id.slave, id.peers = true, m.Optional
	}
	hasBelow := false
	if b.Recursive {
		id.below, hasBelow = t.below(m, dir, id.slave)
	}
	id.recursive = b.Recursive && (id.slave || hasBelow)
	if b.ReadOnly && (id.slave || hasBelow) {
		id.access = accessTop
		if b.RecursiveReadOnly {
			id.access = accessAll
		}
	}
	return id, nil
}

// find returns the mount that a directory is in, its path and its inode number.
func (t hostMounts) find(source *os.File) (m *mountinfo.Info, dir string, inode uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(int(source.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_MNT_ID, &st)
	if err != nil {
		return nil, "", 0, os.NewSyscallError("statx", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mask&unix.STATX_MNT_ID == 0 {
		return nil, "", 0, errNotCommon
	}
	if dir, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", source.Fd())); err != nil {
		return nil, "", 0, err
	}
	at := slices.IndexFunc(t, func(m *mountinfo.Info) bool { return m.ID == int(st.Mnt_id) })
	if at < 0 {
		return nil, "", 0, errNotCommon
	}
	return t[at], dir, st.Ino, nil
}

// readOnly reports whether the host's mount is read-only, and the bind so too.
func (id *identity) readOnly() bool { return slices.Contains(strings.Split(id.options, ","), "ro") }

// propagates reports whether a slave of the mount gets what is mounted below it.
func propagates(m *mountinfo.Info) bool {
	return strings.Contains(m.Optional, "shared:") || strings.Contains(m.Optional, "master:")
}

// below lists the mounts below a directory of a mount; a slave keeps those like the
// host's whose parents propagate, and they are left out. some is set if there are any.
func (t hostMounts) below(m *mountinfo.Info, dir string, slave bool) (list string, some bool) {
	parents := map[int]*mountinfo.Info{m.ID: m}
	var found []string
	for more := true; more; {
		more = false
		for _, child := range t {
			parent := parents[child.Parent]
			name, inside := below(dir, child.Mountpoint)
			if parent == nil || !inside || parents[child.ID] != nil {
				continue
			}
			parents[child.ID], more, some = child, true, true
			if !slave || !propagates(parent) {
				found = append(found, fmt.Sprintf("%s %d:%d %s %s", name, child.Major, child.Minor, child.Root, child.Options))
			}
		}
	}
	slices.Sort(found)
	return strings.Join(found, "\n"), some
}

// below returns a path relative to dir, if it is that directory or below it.
func below(dir, path string) (rest string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
