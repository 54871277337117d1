package rootfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mask hides paths: files below /dev/null, directories below an empty tmpfs.
type mask struct {
	// null is the container's /dev/null.
	null int
	// empty is the tmpfs as it was first mounted, -1 before. One is enough for all
	// directories.
	empty int
}

// maskPaths hides the config's masked paths that exist.
func (r *Root) maskPaths() error {
	if len(r.config.MaskPaths) == 0 {
		return nil
	}
	null, err := r.openNull()
	if err != nil {
		return fmt.Errorf("can't mask paths: %w", err)
	}
	m := mask{null: null, empty: -1}
	defer m.close()
	for i, name := range r.config.MaskPaths {
		if contains(r.config.MaskPaths[:i], name) {
			continue
		}
		if err := r.maskPath(&m, name); err != nil {
			return fmt.Errorf("can't mask path %q: %w", name, err)
		}
	}
	return nil
}

// contains reports whether one of paths is name when both are clean.
func contains(paths []string, name string) bool {
	name = clean(name)
	for _, p := range paths {
		if clean(p) == name {
			return true
		}
	}
	return false
}

// openNull opens the container's /dev/null, if it is that device.
func (r *Root) openNull() (int, error) {
	fd, err := r.open("/dev/null", unix.O_PATH, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFCHR || uint64(st.Rdev) != unix.Mkdev(1, 3)) { //nolint:unconvert // The field's type differs between architectures.
		err = errors.New("container's /dev/null is invalid")
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (r *Root) maskPath(m *mask, name string) error {
	at, err := r.open(name, unix.O_PATH, 0)
	if err != nil {
		return r.ignoreMissing(name, err)
	}
	defer unix.Close(at)
	if !isDir(at) {
		return attachCopy(m.null, at)
	}
	if m.empty >= 0 {
		return attachCopy(m.empty, at)
	}
	if m.empty, err = newEmpty(); err != nil {
		return err
	}
	return attach(m.empty, at)
}

func (m *mask) close() {
	unix.Close(m.null)
	if m.empty >= 0 {
		unix.Close(m.empty)
	}
}

// attachCopy mounts a copy of what is at from.
func attachCopy(from, at int) error {
	tree, err := cloneTree(from, "", false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, at)
}

// newEmpty returns a read-only tmpfs without room for a file.
func newEmpty() (int, error) {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make tmpfs: %w", err)
	}
	defer unix.Close(fd)
	err = errors.Join(
		unix.FsconfigSetString(fd, "source", "tmpfs"),
		unix.FsconfigSetFlag(fd, "ro"),
		unix.FsconfigSetString(fd, "nr_blocks", "1"),
		unix.FsconfigSetString(fd, "nr_inodes", "1"),
		unix.FsconfigCreate(fd),
	)
	if err != nil {
		return -1, fmt.Errorf("configure tmpfs: %w", err)
	}
	return unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
}
