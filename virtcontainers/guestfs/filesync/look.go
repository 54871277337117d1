package filesync

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// source is what is copied.
type source struct {
	// dir is a directory: the one that is copied or, if name is not empty, the
	// one with the file that is.
	dir, name string
	limits    Limits
}

// newSource makes the source of a path, which may lead through links.
func newSource(name string, limits Limits) (*source, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("inspect what is to be copied: %w", err)
	}
	switch {
	case info.IsDir():
		return &source{dir: name, limits: limits}, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is %v, want a directory or a regular file: %w", name, info.Mode().Type(), errdefs.ErrInvalidArgument)
	}
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, fmt.Errorf("find what is to be copied: %w", err)
	}
	return &source{dir: filepath.Dir(file), name: filepath.Base(file), limits: limits}, nil
}

// errGone says that the source is not there any more.
var errGone = errors.New("it does not exist any more")

// seen is a look at the source.
type seen struct {
	root *os.Root
	tree tree
	// special is what cannot be copied, in a word, by path.
	special map[string]string
	// moved: something changed while it was looked at.
	moved bool
	bytes int64
}

func (s *seen) close() { _ = s.root.Close() }

// watches takes notice of what is looked at, before it is; name is what of a
// directory is of interest, or empty.
type watches interface {
	add(f *os.File, name string)
}

// look looks at the whole source. A directory that is gone is errGone; a file
// that is gone, or is not a regular file any more, is an empty tree: it may come
// back. Close the result.
func (s *source) look(w watches) (*seen, error) {
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	found := &seen{root: root, tree: tree{}, special: map[string]string{}}
	if s.name != "" {
		err = s.lookAtFile(found, w)
	} else {
		err = s.lookAtTree(found, w)
	}
	if err != nil {
		found.close()
		return nil, err
	}
	return found, nil
}

// openFlags keep an open from waiting for the other end of a FIFO.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

func (s *source) lookAtFile(found *seen, w watches) error {
	dir, err := found.root.Open(".")
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer dir.Close()
	watch(w, dir, s.name)
	f, err := found.root.OpenFile(s.name, openFlags, 0)
	if isMoved(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer f.Close()
	watch(w, f, "") // What it is bound to may be changed through another directory.
	st, err := statOf(f)
	if err != nil {
		return err
	}
	if e, _ := entryOf(&st); e.kind == regular {
		found.tree[""], found.bytes = e, e.size
	}
	return s.check(found)
}

func watch(w watches, f *os.File, name string) {
	if w != nil {
		w.add(f, name)
	}
}

// isMoved tells errors of a file that is not what it was a moment ago. One that
// is not the kernel's is os.Root's: it is a link now, and leads out of the tree.
func isMoved(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err != nil
	}
	return slices.Contains([]unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.ESTALE}, errno)
}

// lookAtTree looks at directories from the top down, and at all links of a
// directory before the directories below it: what a link leads to, in
// Kubernetes' volumes, was there in whole before the link was.
func (s *source) lookAtTree(found *seen, w watches) error {
	dirs := []string{""}
	for len(dirs) > 0 {
		below, err := s.lookAtDir(found, dirs[0], w)
		if err != nil {
			return err
		}
		dirs = append(dirs[1:], below...)
	}
	return nil
}

// lookAtDir notes a directory and what is in it, and returns the directories
// among that.
func (s *source) lookAtDir(found *seen, dir string, w watches) (below []string, err error) {
	f, err := found.root.OpenFile(path.Join(".", dir), openFlags|unix.O_DIRECTORY, 0)
	if dir != "" && isMoved(err) {
		found.moved = true
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	defer f.Close()
	watch(w, f, "")
	st, err := statOf(f)
	if err != nil {
		return nil, err
	}
	e, _ := entryOf(&st)
	found.moved = found.moved || dir != "" && found.tree[dir] != e
	found.tree[dir] = e
	names, err := s.names(f)
	if err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	for _, name := range names {
		isDir, err := s.lookAtName(found, f, path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if isDir {
			below = append(below, path.Join(dir, name))
		}
	}
	return below, nil
}

// names reads the names in a directory, not many more than the limits allow.
func (s *source) names(dir *os.File) ([]string, error) {
	const atOnce = 256
	var names []string
	for {
		some, err := dir.Readdirnames(atOnce)
		names = append(names, some...)
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if len(names) > s.limits.Files {
			return names, nil // They are too many, as a look at them finds.
		}
	}
}

// lookAtName notes one file of an open directory, and reports whether it is a
// directory.
func (s *source) lookAtName(found *seen, dir *os.File, rel string) (isDir bool, err error) {
	e, special, err := statAt(dir, path.Base(rel))
	switch {
	case isMoved(err):
		found.moved = true
		return false, nil
	case err != nil:
		return false, fmt.Errorf("inspect %q: %w", rel, err)
	case !utf8.ValidString(rel) || !utf8.ValidString(e.link):
		special = "name that is not UTF-8" // No message can hold it (protobuf, "string").
		fallthrough
	case special != "":
		found.special[rel] = special
	default:
		found.tree[rel] = e
		found.bytes += e.size
	}
	return e.kind == directory, s.check(found)
}

// check reports whether what was found is within the limits. What cannot be
// copied counts as well.
func (s *source) check(found *seen) error {
	files := len(found.tree) + len(found.special)
	if s.name == "" {
		files-- // the root
	}
	switch {
	case files > s.limits.Files:
		return fmt.Errorf("it has more than %d files: %w", s.limits.Files, errdefs.ErrResourceExhausted)
	case found.bytes > s.limits.Bytes:
		return fmt.Errorf("it has %d bytes or more, want at most %d: %w", found.bytes, s.limits.Bytes, errdefs.ErrResourceExhausted)
	}
	return nil
}

// statAt looks at a name in an open directory.
func statAt(dir *os.File, name string) (e entry, special string, err error) {
	conn, err := dir.SyscallConn()
	if err != nil {
		return e, "", err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		var st unix.Stat_t
		if failed = unix.Fstatat(int(fd), name, &st, unix.AT_SYMLINK_NOFOLLOW); failed != nil {
			return
		}
		if e, special = entryOf(&st); e.kind == symlink {
			e.link, failed = readlinkAt(int(fd), name)
		}
	})
	return e, special, errors.Join(err, failed)
}

func readlinkAt(dir int, name string) (string, error) {
	var target [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, name, target[:])
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}
