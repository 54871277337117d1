package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// What Kubernetes adds to the permissions of a volume with an fsGroup
// (documentation of PodSecurityContext: "the permission bits are OR'd with
// rw-rw----" and "the setgid bit is set"; directories must also be searchable).
const (
	groupFileMode = 0o660
	groupDirMode  = groupFileMode | 0o110 | unix.S_ISGID
)

// maxDepth bounds nested directories: names of one letter in a path of
// PATH_MAX. Each level keeps a file open.
const maxDepth = unix.PathMax / 2

// groupChange gives the files of a volume to a group.
type groupChange struct {
	gid uint32
	// device is the volume's device: other file systems mounted in it are not
	// changed.
	device uint64
}

// setGroup gives all files of a mounted storage to a group, as Kubernetes'
// fsGroup does. They may change meanwhile: it follows no link, and skips what
// is gone.
func setGroup(ctx context.Context, target string, group *api.FSGroup) error {
	if group.GetGid() == 1<<32-1 { // Means "unchanged" to chown(2).
		return fmt.Errorf("%d is not a group id: %w", group.GetGid(), errdefs.ErrInvalidArgument)
	}
	root, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", target, err)
	}
	defer unix.Close(root)
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return fmt.Errorf("inspect %s: %w", target, err)
	}
	if group.GetOnRootMismatch() && groupFits(&st, group.GetGid()) {
		return nil
	}
	return groupChange{gid: group.GetGid(), device: st.Dev}.apply(ctx, root, &st, 0)
}

// groupFits reports whether a root directory shows that its volume was already
// given to the group (Kubernetes, fsGroupChangePolicy: OnRootMismatch). The
// root is changed last.
func groupFits(st *unix.Stat_t, gid uint32) bool {
	return st.Gid == gid && st.Mode&groupDirMode == groupDirMode
}

// apply changes the file of an O_PATH descriptor, after everything below it.
func (g groupChange) apply(ctx context.Context, fd int, st *unix.Stat_t, depth int) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := g.below(ctx, fd, depth); err != nil {
			return err
		}
	}
	// Empty path: the file itself, even if it is a link (chown(2)).
	if err := unix.Fchownat(fd, "", -1, int(g.gid), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set group of %s: %w", nameOf(fd), err)
	}
	mode := st.Mode & 0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil // A link has no permissions.
	case unix.S_IFDIR:
		mode |= groupDirMode
	default:
		mode |= groupFileMode
	}
	// fchmod(2) does not accept an O_PATH descriptor.
	if err := unix.Chmod(descriptorPath(fd), mode); err != nil {
		return fmt.Errorf("set mode of %s: %w", nameOf(fd), err)
	}
	return nil
}

// descriptorPath returns a path to an open file (proc(5)).
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// nameOf returns an open file's name for an error.
func nameOf(fd int) string {
	name, err := os.Readlink(descriptorPath(fd))
	if err != nil {
		return "a file"
	}
	return fmt.Sprintf("%.300q", name)
}

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 256

func (g groupChange) below(ctx context.Context, fd, depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("%s is %d directories deep, want at most %d: %w", nameOf(fd), depth+1, maxDepth, errdefs.ErrFailedPrecondition)
	}
	dir, err := os.Open(descriptorPath(fd))
	if err != nil {
		return fmt.Errorf("open directory %s: %w", nameOf(fd), err)
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(namesAtOnce)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read directory %s: %w", nameOf(fd), err)
		}
		for _, name := range names {
			if err := g.entry(ctx, fd, name, depth+1); err != nil {
				return err
			}
		}
	}
}

func (g groupChange) entry(ctx context.Context, dir int, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %.255q in %s: %w", name, nameOf(dir), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("inspect %s: %w", nameOf(fd), err)
	}
	if st.Dev != g.device {
		return nil
	}
	return g.apply(ctx, fd, &st, depth)
}

// wantsGroup reports whether a storage's files are to be given to a group. Like
// Kubernetes, it skips read-only storages.
func wantsGroup(s *api.Storage) bool {
	flags, _ := parseMountOptions(s.GetOptions())
	return s.GetFsGroup() != nil && flags&unix.MS_RDONLY == 0 && s.GetFstype() != "erofs"
}

// groupDrivers are those whose files belong to the guest: not the host's, and
// not an overlay's, which would all be copied up.
var groupDrivers = []string{"tmpfs", "hugetlbfs", virtioBlk, scsi}

func checkGroup(s *api.Storage) error {
	if s.GetFsGroup() != nil && !slices.Contains(groupDrivers, s.GetDriver()) {
		return fmt.Errorf("files of a %s storage cannot be given to a group: %w", s.GetDriver(), errdefs.ErrInvalidArgument)
	}
	return nil
}
