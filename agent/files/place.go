package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// place is a name in an open directory. Links are never followed.
type place struct {
	dir  int
	name string
}

// openParent opens a path's parent directory. A symbolic link on the way is
// unix.ELOOP.
func openParent(root int, rel string) (int, error) {
	dir, err := unix.Openat2(root, path.Dir(rel), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open its directory: %w", err)
	}
	return dir, nil
}

// makeDirectory makes a directory, or sets mode and owner of an existing one,
// unless the change says to keep it.
func (p place) makeDirectory(c *api.FileChange) error {
	err := unix.Mkdirat(p.dir, p.name, 0o700)
	there := errors.Is(err, unix.EEXIST)
	if err != nil && !there {
		return fmt.Errorf("make directory: %w", err)
	}
	fd, err := unix.Openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	defer unix.Close(fd)
	if there && c.GetDirectory().GetKeep() {
		return nil
	}
	return setOwner(fd, c)
}

// setOwner sets an open file's owner and mode, in this order: the kernel clears
// set-user-ID when the owner changes (chown(2)).
func setOwner(fd int, c *api.FileChange) error {
	if err := unix.Fchown(fd, int(c.GetUid()), int(c.GetGid())); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	if err := unix.Fchmod(fd, c.GetMode()); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	return nil
}

// makeSymlink makes a symbolic link, replacing what is there, which must not be
// a directory.
func (p place) makeSymlink(target string) error {
	if target == "" || len(target) > maxPath {
		return fmt.Errorf("the link's target has %d bytes, want 1 to %d: %w", len(target), maxPath, errdefs.ErrInvalidArgument)
	}
	return p.replace(func(name string) error { return unix.Symlinkat(target, p.dir, name) })
}

// replace makes something under a random name and renames it into place
// (rename(2)).
func (p place) replace(create func(name string) error) error {
	hidden := ".katabox." + rand.Text()
	if err := create(hidden); err != nil {
		return fmt.Errorf("make it under a temporary name: %w", err)
	}
	if err := unix.Renameat(p.dir, hidden, p.dir, p.name); err != nil {
		_ = unix.Unlinkat(p.dir, hidden, 0) // A container may have removed it already.
		return fmt.Errorf("rename it to its final name: %w", err)
	}
	return nil
}

// remove removes what is there, and everything below it. It is no error if
// there is nothing. os.RemoveAll descends by open directories and follows no
// link; it starts from our directory's descriptor.
func (p place) remove() error {
	err := os.RemoveAll(descriptorPath(p.dir) + "/" + p.name)
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err // The error's path means nothing to the host.
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// descriptorPath returns a path to an open file (proc(5)).
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
