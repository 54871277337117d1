package virtcontainers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lateFile is a new file that has its name only once it is complete: what a process
// has written that was killed meanwhile is no file.
type lateFile struct {
	*os.File
	path string
	// temporary is its name until then, where a file system has no files without a
	// name (NFS, FUSE); otherwise "".
	temporary string
	named     bool
}

// createLate makes a file, and the directories above it. It fails with os.ErrExist if
// there is one at path.
func createLate(path string) (*lateFile, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, &os.PathError{Op: "create", Path: path, Err: unix.EEXIST}
	}
	if canName(dir) {
		file, err := openUnnamed(dir)
		return &lateFile{File: file, path: path}, err
	}
	return createTemporary(path)
}

// createTemporary makes a file with a temporary name.
func createTemporary(path string) (*lateFile, error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	return &lateFile{File: file, path: path, temporary: file.Name()}, nil
}

// canName reports whether the file system of a directory has files without a name, and
// can give them one later: some have them only until they are closed.
func canName(dir string) bool {
	file, err := openUnnamed(dir)
	if err != nil {
		return false
	}
	defer file.Close()
	trial := filepath.Join(dir, ".name-"+rand.Text())
	return link(file, trial) == nil && os.Remove(trial) == nil
}

// openUnnamed makes a file without a name in a directory.
func openUnnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "make file in", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// link gives such a file its name.
func link(file *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// finish gives the file its name, on the disk too, and closes it. It does not replace
// another one. Its content must be on the disk. After an error remove must follow.
func (f *lateFile) finish() error {
	if err := f.name(); err != nil {
		return &os.PathError{Op: "create", Path: f.path, Err: err}
	}
	f.named = true
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close(), f.Close())
}

func (f *lateFile) name() error {
	if f.temporary == "" {
		return link(f.File, f.path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, f.temporary, unix.AT_FDCWD, f.path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // the file system cannot do it without replacing
		err = os.Rename(f.temporary, f.path)
	}
	return err
}

// remove removes the file, whether it has its name or not.
func (f *lateFile) remove() error {
	_ = f.Close() // it may be closed
	switch {
	case f.named:
		return os.Remove(f.path)
	case f.temporary != "":
		return os.Remove(f.temporary)
	}
	return nil
}
