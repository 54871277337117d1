package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// bind mounts source, a path on the host, at target, a path in the space. point
// is the path at which the mount point can be made.
// Mounts that the host makes later below source appear there if b requests it,
// as with a slave mount; mounts below target never reach the host. It returns the
// flags that the guest's mount keeps (guestspec.Placed).
func (s *space) bind(ctx context.Context, source, point, target string, b guestspec.Bind) (flags []string, err error) {
	found, err := intime.Call(ctx, func() (*opened, error) { return openClone(source, b) }, (*opened).drop)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", source, err)
	}
	return found.flags, s.bindTree(ctx, found.File, point, target, b)
}

// opened is the source of a bind, or a clone of it, for which the host's file system has
// answered: what follows does not ask it.
type opened struct {
	*os.File
	// flags are its keptFlags.
	flags []string
}

func (o *opened) drop() { _ = o.Close() } // of O_PATH

// openClone opens a clone of a bind's source.
func openClone(source string, b guestspec.Bind) (*opened, error) {
	tree, err := cloneMount(source, b.Recursive)
	if err != nil {
		return nil, err
	}
	flags, err := keptFlags(tree, b)
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return &opened{tree, flags}, nil
}

// bindTree is bind for a clone of source, which it closes on an error.
func (s *space) bindTree(ctx context.Context, tree *os.File, point, target string, b guestspec.Bind) error {
	source := tree.Name()
	kind, err := prepare(tree, b)
	if err != nil {
		return errors.Join(fmt.Errorf("bind %s: %w", source, err), tree.Close())
	}
	if err := s.do(ctx, func() error {
		if err := makeMountPoint(point, kind == unix.S_IFDIR); err != nil {
			return err
		}
		return place(tree, target, b)
	}, tree.Close); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	if canSetAttributes() {
		return nil
	}
	if err := s.remountBelow(ctx, target, b); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// keptFlags are the flags of a clone, before it has those of the share, that the
// guest's mount is to have too: only the guest's kernel can apply them.
func keptFlags(tree *os.File, b guestspec.Bind) (flags []string, err error) {
	if !b.KeepsFlags {
		return nil, nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(tree.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	for _, f := range []struct {
		flag int64
		name string
	}{{unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"}, {stNoSymFollow, "nosymfollow"}} {
		if st.Flags&f.flag != 0 {
			flags = append(flags, f.name)
		}
	}
	return flags, nil
}

// stNoSymFollow is ST_NOSYMFOLLOW (include/linux/statfs.h).
const stNoSymFollow = 0x2000

// prepare gives a clone its attributes, and returns its type (S_IFMT).
func prepare(tree *os.File, b guestspec.Bind) (uint16, error) {
	if err := setAttributes(tree, b); err != nil {
		return 0, err
	}
	kind, err := typeOf(tree)
	if err == nil && kind == unix.S_IFSOCK {
		err = fmt.Errorf("the source is a UNIX socket, which cannot be reached from inside a VM: %w", errdefs.ErrInvalidArgument)
	}
	return kind, err
}

// cloneMount makes a detached copy of the mount at a path on the host, or of
// the part of it below that path (open_tree(2)).
func cloneMount(source string, recursive bool) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, cloneFlags(recursive))
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("the source does not exist: %w", errdefs.ErrNotFound)
	case errors.Is(err, unix.ENOSYS):
		return nil, fmt.Errorf("the kernel has no open_tree (Linux 5.2): %w", errdefs.ErrNotImplemented)
	case err != nil:
		return nil, os.NewSyscallError("open_tree", err)
	}
	return os.NewFile(uintptr(fd), source), nil
}

// cloneOf is cloneMount for a source that openSource has opened.
func cloneOf(source *os.File, recursive bool) (*os.File, error) {
	fd, err := unix.OpenTree(int(source.Fd()), "", cloneFlags(recursive)|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", source.Name(), err)
	}
	return os.NewFile(uintptr(fd), source.Name()), nil
}

func cloneFlags(recursive bool) uint {
	if recursive {
		return unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
	}
	return unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
}

// Clone makes a detached copy of what b mounts. The caller closes it.
func Clone(ctx context.Context, b guestspec.Bind) (*os.File, error) {
	tree, err := intime.Call(ctx, func() (*os.File, error) { return cloneMount(b.Source, b.Recursive) }, func(tree *os.File) { _ = tree.Close() })
	if err == nil {
		if err = setAttributes(tree, b); err != nil {
			err = errors.Join(err, tree.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", b.Source, err)
	}
	return tree, nil
}

// canSetAttributes reports whether the kernel has mount_setattr (Linux 5.12).
var canSetAttributes = sync.OnceValue(func() bool {
	return !errors.Is(unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{}), unix.ENOSYS)
})

// setAttributes sets a mount's attributes before it is reachable: once it is in
// the share, the guest may use it (mount_setattr(2)). It must not honour device
// nodes that a guest makes, nor set-user-ID bits; it is read-only if b says so;
// and its owners are mapped, which is only possible for a detached mount. The
// owners of mounts below it stay unless b says otherwise: not every file system
// can be mapped (proc, sysfs).
func setAttributes(tree *os.File, b guestspec.Bind) error {
	all := uint(unix.AT_EMPTY_PATH)
	if b.Recursive {
		all |= unix.AT_RECURSIVE
	}
	if canSetAttributes() { // otherwise bind does it when it is reachable
		confined := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID}
		if err := unix.MountSetattr(int(tree.Fd()), "", all, &confined); err != nil {
			return fmt.Errorf("forbid devices: %w", err)
		}
	}
	if err := setReadOnly(tree, b); err != nil {
		return fmt.Errorf("make read-only: %w", err)
	}
	if b.IDMap == nil {
		return nil
	}
	userns, err := userNamespace(b.IDMap)
	if err != nil {
		return err
	}
	defer userns.Close()
	which := uint(unix.AT_EMPTY_PATH)
	if b.IDMap.Recursive {
		which = all
	}
	mapped := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(int(tree.Fd()), "", which, &mapped); err != nil {
		return fmt.Errorf("map the owners of its files (a file system that cannot be idmapped?): %w", err)
	}
	return nil
}

// setReadOnly makes a detached mount read-only if b requests it, and those
// below it if b requests that. On a kernel that cannot do so, bind does.
func setReadOnly(tree *os.File, b guestspec.Bind) error {
	flags := uint(unix.AT_EMPTY_PATH)
	switch {
	case b.RecursiveReadOnly:
		flags |= unix.AT_RECURSIVE
	case !b.ReadOnly:
		return nil
	}
	switch {
	case canSetAttributes():
		return unix.MountSetattr(int(tree.Fd()), "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	case b.RecursiveReadOnly:
		return fmt.Errorf("with all mounts below it: the kernel has no mount_setattr (Linux 5.12): %w", errdefs.ErrNotImplemented)
	}
	return nil
}

// userNamespace makes a user namespace with those mappings. It lives while the
// file is open.
func userNamespace(m *guestspec.IDMap) (*os.File, error) {
	if len(m.UIDs) == 0 || len(m.GIDs) == 0 {
		return nil, fmt.Errorf("an idmapped mount needs mappings of user and group ids, got %d and %d: %w",
			len(m.UIDs), len(m.GIDs), errdefs.ErrInvalidArgument)
	}
	userns, err := mount.GetUsernsFD(mappings(m.UIDs), mappings(m.GIDs))
	if err != nil {
		return nil, fmt.Errorf("make user namespace for an idmapped mount: %w", err)
	}
	return userns, nil
}

// mappings writes mappings as "container:host:size,...".
func mappings(list []specs.LinuxIDMapping) string {
	words := make([]string, len(list))
	for i, m := range list {
		words[i] = fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size)
	}
	return strings.Join(words, ",")
}

// typeOf returns a file's type (S_IFMT). It does not ask a file system's server,
// which may hang: the type cannot change.
func typeOf(f *os.File) (uint16, error) {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return st.Mode & unix.S_IFMT, os.NewSyscallError("statx", err)
}

// place mounts a clone at target; it runs on the space's thread.
func place(tree *os.File, target string, b guestspec.Bind) error {
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	propagation := uintptr(unix.MS_PRIVATE)
	if b.Slave {
		propagation = unix.MS_SLAVE
	}
	if err := unix.Mount("", target, "", unix.MS_REC|propagation, ""); err != nil {
		return fmt.Errorf("set propagation: %w", err)
	}
	return nil
}

// makeMountPoint makes an empty directory or file.
func makeMountPoint(target string, isDir bool) error {
	if isDir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(path.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// remountBelow gives the mounts at and below target the attributes that
// setAttributes cannot set on kernels before 5.12: the guest can do without them
// for a moment.
func (s *space) remountBelow(ctx context.Context, target string, b guestspec.Bind) error {
	mounts, err := s.mounts(target)
	if err != nil {
		return fmt.Errorf("find mounts below %s: %w", target, err)
	}
	return s.do(ctx, func() error {
		for _, m := range mounts {
			flags := flagsOf(m.Options) | unix.MS_NODEV | unix.MS_NOSUID
			if m.Mountpoint == target && b.ReadOnly {
				flags |= unix.MS_RDONLY
			}
			if err := unix.Mount("", m.Mountpoint, "", flags|unix.MS_BIND|unix.MS_REMOUNT, ""); err != nil {
				return fmt.Errorf("forbid devices, or writing, in %s: %w", m.Mountpoint, err)
			}
		}
		return nil
	})
}

// makeWritable makes the mount at target writable, and leaves those below it.
func (s *space) makeWritable(ctx context.Context, target string) error {
	if canSetAttributes() {
		return s.do(ctx, func() error {
			return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		})
	}
	mounts, err := s.mounts(target)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint == target })
	if at < 0 {
		return fmt.Errorf("nothing is mounted at %s: %w", target, errdefs.ErrNotFound)
	}
	flags := flagsOf(mounts[at].Options) &^ unix.MS_RDONLY
	return s.do(ctx, func() error { return unix.Mount("", target, "", flags|unix.MS_BIND|unix.MS_REMOUNT, "") })
}

// flagsOf returns the flags that a remount must repeat: one that would clear a
// locked one is refused (mount_namespaces(7)). options are mountinfo's.
func flagsOf(options string) (flags uintptr) {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "ro":
			flags |= unix.MS_RDONLY
		case "nosuid":
			flags |= unix.MS_NOSUID
		case "nodev":
			flags |= unix.MS_NODEV
		case "noexec":
			flags |= unix.MS_NOEXEC
		}
	}
	return flags
}

// hasWritableBelow reports whether a read-only bind has, or may have later, other
// mounts below it that are not made read-only.
func (s *space) hasWritableBelow(target string, b guestspec.Bind) (bool, error) {
	switch {
	case !b.ReadOnly || b.RecursiveReadOnly:
		return false, nil
	case b.Slave: // the host's later mounts are as the host makes them
		return true, nil
	case !b.Recursive:
		return false, nil
	}
	mounts, err := s.mounts(target)
	if err != nil {
		return false, fmt.Errorf("find mounts below %s: %w", target, err)
	}
	return len(mounts) > 1, nil // the bind itself is one
}
