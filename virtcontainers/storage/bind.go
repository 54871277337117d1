package storage

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// bindInto mounts source at target. Mounts that the host makes below source
// later follow if b asks for it, as with a slave mount; mounts below target
// never reach the host.
func bindInto(source, target string, b guestspec.Bind) error {
	if err := makeMountPoint(source, target); err != nil {
		return err
	}
	bind := bindPlain
	if b.IDMap != nil {
		bind = bindMapped
	}
	if err := bind(source, target, b); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	propagation := uintptr(unix.MS_PRIVATE)
	if b.Slave {
		propagation = unix.MS_SLAVE
	}
	if err := unix.Mount("", target, "", unix.MS_REC|propagation, ""); err != nil {
		return fmt.Errorf("set propagation of %s: %w", source, err)
	}
	if err := makeReadOnly(target, b); err != nil {
		return fmt.Errorf("bind %s read-only: %w", source, err)
	}
	return nil
}

func bindPlain(source, target string, b guestspec.Bind) error {
	flags := uintptr(unix.MS_BIND)
	if b.Recursive {
		flags |= unix.MS_REC
	}
	return unix.Mount(source, target, "", flags, "")
}

// bindMapped binds with the owners of files mapped: only a mount that nobody
// has seen yet can be (mount_setattr(2), MOUNT_ATTR_IDMAP).
func bindMapped(source, target string, b guestspec.Bind) error {
	userns, err := userNamespace(b.IDMap)
	if err != nil {
		return err
	}
	defer userns.Close()
	var recursive uint
	if b.Recursive {
		recursive = unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return fmt.Errorf("clone mount: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive, &attr); err != nil {
		return fmt.Errorf("map the owners of its files (a file system that cannot be idmapped?): %w", err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// userNamespace makes a user namespace with those mappings, which lives as
// long as the file is open.
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

// makeReadOnly makes the mount at target read-only, if b asks for it.
func makeReadOnly(target string, b guestspec.Bind) error {
	switch {
	case b.RecursiveReadOnly:
		err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		if errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("with all mounts below it: the kernel has no mount_setattr (Linux 5.12): %w", errdefs.ErrNotImplemented)
		}
		return err
	case b.ReadOnly:
		return remountReadOnly(target)
	}
	return nil
}

// remountReadOnly keeps the flags that the source's mount has: a remount that
// would clear a locked one is refused (mount_namespaces(7)).
func remountReadOnly(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return err
	}
	const kept = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	flags := uintptr(st.Flags&kept) | unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	return unix.Mount("", target, "", flags, "")
}

// hasWritableBelow tells whether a read-only bind has other mounts below it
// that are not made read-only.
func hasWritableBelow(target string, b guestspec.Bind) (bool, error) {
	if !b.ReadOnly || b.RecursiveReadOnly || !b.Recursive {
		return false, nil
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(target))
	if err != nil {
		return false, fmt.Errorf("look for mounts below %s: %w", target, err)
	}
	return len(mounts) > 1, nil // the bind itself is one
}
