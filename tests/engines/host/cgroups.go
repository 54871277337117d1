package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// RemoveCgroups removes a cgroup, "/name", and those in it from each of the
// machine's hierarchies.
func RemoveCgroups(cgroup string) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + cgroup)
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range append(roots, "/sys/fs/cgroup"+cgroup) {
		errs = append(errs, removeTree(root))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup's directories, which rmdir(2) removes although
// they hold files.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return err
}
