package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// userFiles are the files that users and groups are looked up in, below a root.
var userFiles = []string{"etc/passwd", "etc/group"}

// mostOfUsers bounds such a file, in bytes.
const mostOfUsers = 16 << 20

// Users calls f with a directory that has a container's files of users and groups as
// they are now, without what volumes put in their place: copies, because the container
// can change them meanwhile. It waits as Use does.
func (s *Store) Users(ctx context.Context, name string, f func(root string) error) (err error) {
	img, err := s.imageOf(name)
	if err != nil {
		return err
	}
	copies, err := os.MkdirTemp(s.ContainerDir(name), newPrefix)
	if err != nil {
		return fmt.Errorf("copy the container's users: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(copies)) }()
	if err := os.Mkdir(filepath.Join(copies, "etc"), 0o700); err != nil {
		return fmt.Errorf("copy the container's users: %w", err)
	}
	if err := s.viewContainer(ctx, name, img, func(root string) error { return copyUsers(root, copies) }); err != nil {
		return err
	}
	return f(copies)
}

// viewContainer is View with what the container has changed.
func (s *Store) viewContainer(ctx context.Context, name string, img Image, f func(root string) error) error {
	rootfs, upper := filepath.Join(s.ContainerDir(name), "rootfs"), filepath.Join(s.ContainerDir(name), "upper")
	if _, err := os.Stat(upper); errors.Is(err, os.ErrNotExist) {
		return f(rootfs) // a copy of the image's files
	}
	if img.Dir != "" {
		return s.stacked(ctx, upper+":"+img.Dir, f)
	}
	return s.stacked(ctx, upper+":"+topFirst(img.Layers, ""), f)
}

// copyUsers copies the files of users and groups that are below root. Links are
// followed within it.
func copyUsers(root, to string) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the container's files: %w", err)
	}
	defer unix.Close(dir)
	for _, name := range userFiles {
		if err := copyBelow(dir, name, filepath.Join(to, name)); err != nil {
			return fmt.Errorf("read /%s of the container: %w", name, err)
		}
	}
	return nil
}

// copyBelow copies a regular file below a directory, if there is one.
func copyBelow(dir int, name, to string) error {
	// With O_PATH nothing waits, and no driver is called, whatever the file is.
	found, err := openBelow(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(found)
	var stat unix.Stat_t
	if err := unix.Fstat(found, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("it is not a regular file: %w", errdefs.ErrInvalidArgument)
	}
	from, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", found))
	if err != nil {
		return err
	}
	defer from.Close()
	data, err := io.ReadAll(io.LimitReader(from, mostOfUsers+1))
	if err != nil {
		return err
	}
	if len(data) > mostOfUsers {
		return fmt.Errorf("it has more than %d bytes: %w", mostOfUsers, errdefs.ErrInvalidArgument)
	}
	return os.WriteFile(to, data, 0o600)
}

// openTries bounds openat2(2)'s attempts: it fails with EAGAIN if something on the host
// was renamed while it followed "..".
const openTries = 100

func openBelow(dir int, name string) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for range openTries {
		if fd, err = unix.Openat2(dir, name, &how); !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}
