package filesync

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// source is what is copied.
type source struct {
	// root is the directory to copy or, if name is not empty, the directory of
	// the file to copy. It stays open, as a bind mount would: a path that is looked up
	// again would lead to whatever directory of the host a link in it names by then.
	root   *os.Root
	name   string
	limits Limits
}

// path returns the path of what is copied, on the host, as it was at the start.
func (s *source) path() string { return filepath.Join(s.root.Name(), s.name) }

// newSource opens the source at a path, which may contain links. Close it.
func newSource(name string, limits Limits) (*source, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("inspect what is to be copied: %w", err)
	}
	s, dir := &source{limits: limits}, name
	switch {
	case info.IsDir():
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is %v, want a directory or a regular file: %w", name, info.Mode().Type(), errdefs.ErrInvalidArgument)
	default:
		file, err := filepath.EvalSymlinks(name)
		if err != nil {
			return nil, fmt.Errorf("find what is to be copied: %w", err)
		}
		dir, s.name = filepath.Dir(file), filepath.Base(file)
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("open what is to be copied: %w", err)
	}
	return s, nil
}

// close may be called more than once, also while the source is used: calls under way
// end first.
func (s *source) close() { _ = s.root.Close() }

// errGone means that the source no longer exists.
var errGone = errors.New("it does not exist any more")

// exists returns errGone if the directory was removed.
func (s *source) exists() error {
	info, err := s.root.Stat(".")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESTALE) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("inspect source: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 0 {
		return errGone
	}
	return nil
}

// openFlags prevent open from blocking on a FIFO.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

// open opens a file of the source for reading, by its path in the copy.
func (s *source) open(rel string) (*os.File, error) {
	if s.name != "" {
		return s.openSingle(openFlags)
	}
	return s.root.OpenFile(rel, openFlags, 0)
}

// openSingle opens the single file. It does not follow a link in its place: os.Root
// would, to any other file of the directory.
func (s *source) openSingle(flags int) (*os.File, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var failed error
	err = conn.Control(func(at uintptr) {
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); { // as package os does
			fd, failed = unix.Openat(int(at), s.name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path(), Err: err}
	}
	return os.NewFile(uintptr(fd), s.path()), nil
}
