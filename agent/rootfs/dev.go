package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// MakesDev reports whether Mount makes the container's devices: /dev is not a bind
// mount.
func MakesDev(config *configs.Config) bool {
	for _, m := range config.Mounts {
		if m.Device == "bind" && clean(m.Destination) == "/dev" {
			return false
		}
	}
	return true
}

// makeDev makes the devices and links in /dev.
func (r *Root) makeDev() error {
	for _, node := range r.config.Devices {
		// A device without a path is in the config for its cgroup alone.
		if node.Path == "" || path.Clean(node.Path) == "/dev/ptmx" {
			continue
		}
		if err := r.makeNode(node); err != nil {
			return fmt.Errorf("error creating device nodes: %w", err)
		}
	}
	dir, err := r.mkdirAll("/dev")
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := makePtmx(dir); err != nil {
		return fmt.Errorf("error setting up ptmx: %w", err)
	}
	if err := makeLinks(dir); err != nil {
		return fmt.Errorf("error setting up /dev symlinks: %w", err)
	}
	return nil
}

// makeNode makes a device node. What exists is left as it is, but for a node that
// an earlier start of the container left.
func (r *Root) makeNode(node *devices.Device) error {
	kind, err := fileType(node)
	if err != nil {
		return err
	}
	dir, base, err := r.parent(r.inside(node.Path))
	if err != nil {
		return fmt.Errorf("mkdir parent of device inode %q: %w", node.Path, err)
	}
	defer unix.Close(dir)
	number, err := node.Mkdev()
	if err != nil {
		return err
	}
	err = unix.Mknodat(dir, base, kind|uint32(node.FileMode), int(number))
	if errors.Is(err, unix.EEXIST) {
		if old, oldErr := r.isOld(dir, base, kind, number); oldErr != nil || !old {
			return oldErr
		}
		if err := unix.Unlinkat(dir, base, 0); err != nil {
			return fmt.Errorf("remove old device node %s: %w", node.Path, err)
		}
		err = unix.Mknodat(dir, base, kind|uint32(node.FileMode), int(number))
	}
	switch {
	case err == nil:
		return ownNode(dir, base, kind, number, node)
	case errors.Is(err, fs.ErrPermission):
		return bindNode(dir, base, node)
	}
	return fmt.Errorf("make device node %s: %w", node.Path, err)
}

// isOld reports whether a name in the root file system is a node with another
// device's number. The path of a device may be outside /dev: its node then stays in
// the container's layer, and the next machine may number its disks differently. A
// node in a volume is not the container's, and so not old.
func (r *Root) isOld(dir int, base string, kind uint32, number uint64) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, fmt.Errorf("inspect device node %s: %w", base, err)
	}
	if kind == unix.S_IFIFO || st.Mode&unix.S_IFMT != kind || uint64(st.Rdev) == number { //nolint:unconvert // The field's type differs between architectures.
		return false, nil
	}
	return r.isOwnMount(dir)
}

// isOwnMount reports whether an open directory is in the root's mount, and not in
// one that was made in it.
func (r *Root) isOwnMount(dir int) (bool, error) {
	root, err := mountID(r.fd)
	if err != nil {
		return false, err
	}
	other, err := mountID(dir)
	return root == other, err
}

// mountID returns the number of the mount that an open file is in.
func mountID(fd int) (uint64, error) {
	var info unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &info)
	if err == nil && info.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.EOPNOTSUPP // before Linux 5.8
	}
	if err != nil {
		return 0, fmt.Errorf("find the mount of a file: %w", err)
	}
	return info.Mnt_id, nil
}

func fileType(node *devices.Device) (uint32, error) {
	switch node.Type {
	case devices.BlockDevice:
		return unix.S_IFBLK, nil
	case devices.CharDevice:
		return unix.S_IFCHR, nil
	case devices.FifoDevice:
		return unix.S_IFIFO, nil
	}
	return 0, fmt.Errorf("%c is not a valid device type for device %s", node.Type, node.Path)
}

// ownNode sets mode and owner of a new node, the first because of the umask. It
// makes sure that they are the node's, and not those of a file that took its
// place meanwhile.
func ownNode(dir int, base string, kind uint32, number uint64, node *devices.Device) error {
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open device node %s: %w", node.Path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("inspect device node %s: %w", node.Path, err)
	}
	if st.Mode&unix.S_IFMT != kind || uint64(st.Rdev) != number { //nolint:unconvert // The field's type differs between architectures.
		return fmt.Errorf("device node %s is %#o %d:%d, want %#o %d:%d", node.Path,
			st.Mode&unix.S_IFMT, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)), //nolint:unconvert // As above.
			kind, unix.Major(number), unix.Minor(number))
	}
	if mode := uint32(node.FileMode) & modeBits; st.Mode&modeBits != mode {
		if err := unix.Fchmodat(unix.AT_FDCWD, fdPath(fd), mode, 0); err != nil {
			return fmt.Errorf("set mode of device node %s: %w", node.Path, err)
		}
	}
	// Even to the owner that it has: chown(2) clears the set-id bits, which no
	// device has with libcontainer.
	if err := unix.Fchownat(fd, "", int(node.Uid), int(node.Gid), unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("set owner of device node %s: %w", node.Path, err)
	}
	return nil
}

// bindNode mounts the guest's own node, where none may be made. The file below it
// must be new: another process may have put a device there, which opening affects.
func bindNode(dir int, base string, node *devices.Device) error {
	fd, err := unix.Openat(dir, base, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create device inode %s: %w", node.Path, err)
	}
	defer unix.Close(fd)
	tree, err := cloneTree(unix.AT_FDCWD, node.Path, false)
	if err != nil {
		return fmt.Errorf("open %s: %w", node.Path, err)
	}
	defer unix.Close(tree)
	return mountError(node.Path, node.Path, unix.MS_BIND, "", attach(tree, fd))
}

// makePtmx makes /dev/ptmx lead to the container's own devpts.
func makePtmx(dir int) error {
	if err := unix.Unlinkat(dir, "ptmx", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove /dev/ptmx: %w", err)
	}
	if err := unix.Symlinkat("pts/ptmx", dir, "ptmx"); err != nil {
		return fmt.Errorf("link /dev/ptmx: %w", err)
	}
	return nil
}

// makeLinks makes the links that programs expect in /dev. What exists is left as
// it is.
func makeLinks(dir int) error {
	links := [...]struct{ target, name string }{
		{"/proc/self/fd", "fd"},
		{"/proc/self/fd/0", "stdin"},
		{"/proc/self/fd/1", "stdout"},
		{"/proc/self/fd/2", "stderr"},
		{"/proc/kcore", "core"},
	}
	list := links[:]
	if unix.Access("/proc/kcore", unix.F_OK) != nil {
		list = list[:len(list)-1] // The kernel has none.
	}
	for _, l := range list {
		if err := unix.Symlinkat(l.target, dir, l.name); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("link /dev/%s: %w", l.name, err)
		}
	}
	return nil
}
