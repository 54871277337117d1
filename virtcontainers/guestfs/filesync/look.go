package filesync

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// seen is the result of a look at the source.
type seen struct {
	tree tree
	// special has the type's name of each file that cannot be copied, by path.
	special map[string]string
	// moved is set if something changed during the look.
	moved bool
	bytes int64
}

// watches is called for each file before a look reads it; name is the entry of
// a directory that matters, or empty for all.
type watches interface {
	add(f *os.File, name string)
}

// look reads the whole source. If the directory is gone it returns errGone; if
// the file is gone, or no longer regular, it returns an empty tree, because the
// file may come back.
func (s *source) look(w watches) (*seen, error) {
	if err := s.exists(); err != nil {
		return nil, err
	}
	found := &seen{tree: tree{}, special: map[string]string{}}
	var err error
	if s.name != "" {
		err = s.lookAtFile(found, w)
	} else {
		err = s.lookAtTree(found, w)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (s *source) lookAtFile(found *seen, w watches) error {
	dir, err := s.root.Open(".")
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer dir.Close()
	watch(w, dir, s.name)
	f, err := s.openSingle(openFlags)
	if isMoved(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer f.Close()
	watch(w, f, "") // A bind-mounted file may be changed by way of another directory.
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

// isMoved reports whether an error means that a file has changed since it was
// listed. An error that is not the kernel's is os.Root's: the file is now a
// link that leads out of the tree.
func isMoved(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err != nil
	}
	return slices.Contains([]unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.ESTALE}, errno)
}

// lookAtTree reads directories from the top down, and all links of a directory
// before its subdirectories: in Kubernetes' volumes a link's target is complete
// before the link exists.
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

// lookAtDir records a directory and its entries, and returns its
// subdirectories.
func (s *source) lookAtDir(found *seen, dir string, w watches) (below []string, err error) {
	f, err := s.root.OpenFile(path.Join(".", dir), openFlags|unix.O_DIRECTORY, 0)
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
	if dir == "" && errors.Is(err, unix.ENOENT) { // It has been removed since look began.
		return nil, errGone
	}
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
			return names, nil // They are too many, as check will find.
		}
	}
}

// lookAtName records one entry of an open directory, and reports whether it is
// a directory to copy.
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
	return e.kind == directory && special == "", s.check(found)
}

// check returns an error if what was found exceeds the limits. Files that
// cannot be copied count too.
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

// statAt calls fstatat(2) for a name in an open directory.
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
