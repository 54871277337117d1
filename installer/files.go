package installer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// newSuffix ends the name of a file that is being written. The name is fixed, so
// that the next run finds what a killed one left.
const newSuffix = ".katabox-new"

// node is the file tree to change. Paths are those on the node: its symbolic
// links are followed within the tree.
type node struct {
	root string
	// cut, if set, is called before each change; if it returns an error,
	// everything stops as if the process had been killed. Tests use it.
	cut func(change string) error
}

// path returns the path by which this process reaches a path of the node.
func (n node) path(name string) (string, error) {
	path, err := securejoin.SecureJoin(n.root, name)
	if err != nil {
		return "", fmt.Errorf("find %s of the node: %w", name, err)
	}
	return path, nil
}

// link returns the path of name itself, which may be a symbolic link.
func (n node) link(name string) (string, error) {
	dir, err := n.path(filepath.Dir(name))
	return filepath.Join(dir, filepath.Base(name)), err
}

// before calls cut before a change.
func (n node) before(change, name string) error {
	if n.cut == nil {
		return nil
	}
	return n.cut(change + " " + name)
}

// read returns a file's content, or nil and no error if it does not exist.
func (n node) read(name string) ([]byte, error) {
	path, err := n.path(name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}

// exists reports whether the node has a file, of any kind, under this name.
func (n node) exists(name string) bool {
	path, err := n.link(name)
	if err != nil {
		return false
	}
	_, err = os.Lstat(path)
	return err == nil
}

// list returns the names in a directory; none if it does not exist.
func (n node) list(name string) ([]string, error) {
	path, err := n.path(name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// write replaces a file atomically and reports whether that changed it. An
// existing file keeps its owner and mode.
func (n node) write(name string, data []byte) (changed bool, err error) {
	old, err := n.read(name)
	if err != nil || old != nil && bytes.Equal(old, data) {
		return false, err
	}
	path, err := n.path(name)
	if err != nil {
		return false, err
	}
	if err := n.before("write", name+newSuffix); err != nil {
		return false, err
	}
	if err := writeNew(path, data); err != nil {
		return false, fmt.Errorf("write %s: %w", name, err)
	}
	if err := n.before("rename", name); err != nil {
		return false, err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return false, err
	}
	return true, syncPath(filepath.Dir(path))
}

// writeNew writes the new content of path beside it, with the owner and mode of
// the existing file.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			if err := f.Chown(int(sys.Uid), int(sys.Gid)); err != nil {
				return err
			}
		}
	}
	if err := f.Chmod(mode); err != nil { // the umask may have removed bits
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// remove removes a file, link or empty directory, if it exists.
func (n node) remove(name string) (removed bool, err error) {
	path, err := n.link(name)
	if err != nil || !n.exists(name) {
		return false, err
	}
	if err := n.before("remove", name); err != nil {
		return false, err
	}
	if err := os.Remove(path); err != nil {
		return false, err
	}
	return true, syncPath(filepath.Dir(path))
}

// removeTree removes a directory with its content, if it exists. It renames the
// directory first, so that no partial one is seen under its name.
func (n node) removeTree(name string) error {
	path, err := n.link(name)
	if err != nil || !n.exists(name) {
		return err
	}
	old := filepath.Join(filepath.Dir(path), ".old")
	if err := n.before("rename", name); err != nil {
		return err
	}
	if path != old {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
		if err := os.Rename(path, old); err != nil {
			return err
		}
	}
	if err := n.before("empty", name); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// pointTo makes name a symbolic link to target, atomically.
func (n node) pointTo(name, target string) error {
	path, err := n.link(name)
	if err != nil {
		return err
	}
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	if err := n.before("link", name+newSuffix); err != nil {
		return err
	}
	if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, path+newSuffix); err != nil {
		return err
	}
	if err := n.before("rename", name); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// mkdir makes a directory in an existing parent, unless it exists.
func (n node) mkdir(name string) error {
	if n.exists(name) {
		return nil
	}
	path, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.before("mkdir", name); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o755); err != nil { // the umask may have removed bits
		return err
	}
	return syncPath(filepath.Dir(path))
}

// copyFile copies a file of this process's root to path, which must not exist.
func copyFile(from, path string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Chmod(mode); err != nil { // the umask may have removed bits
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

// syncPath writes a directory's entries to disk: only then does a rename survive
// a power failure (fsync(2)).
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
