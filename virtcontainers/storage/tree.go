package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// AddContainer puts a container's root file system and bind mounts into the
// share and says where the guest finds them. On an error nothing is left of
// it.
func (s *Share) AddContainer(id, rootfs string, binds []guestspec.Bind) (_ guestspec.Paths, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return guestspec.Paths{}, fmt.Errorf("share rootfs: the share is closed: %w", errdefs.ErrFailedPrecondition)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.removeContainer(id))
		}
	}()
	paths := guestspec.Paths{Binds: make(map[int]string, len(binds)), Writable: make(map[int]bool)}
	if err := bindInto(rootfs, filepath.Join(s.opts.Dir, id, "rootfs"), guestspec.Bind{Recursive: true, Slave: true}); err != nil {
		return paths, fmt.Errorf("share rootfs: %w", err)
	}
	paths.Rootfs = path.Join(api.GuestSharedDir, id, "rootfs")
	for _, b := range binds {
		name := strconv.Itoa(b.Index)
		target := filepath.Join(s.opts.Dir, id, "mounts", name)
		if err := bindInto(b.Source, target, b); err != nil {
			return paths, fmt.Errorf("share mount: %w", err)
		}
		if paths.Writable[b.Index], err = hasWritableBelow(target, b); err != nil {
			return paths, fmt.Errorf("share mount: %w", err)
		}
		paths.Binds[b.Index] = path.Join(api.GuestSharedDir, id, "mounts", name)
	}
	return paths, nil
}

// makeMountPoint makes an empty directory or file to mount source on.
func makeMountPoint(source, target string) error {
	info, err := os.Stat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("source %s is not there: %w", source, errdefs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSocket {
		return fmt.Errorf("source %s is a UNIX socket, which cannot be reached from inside a VM: %w", source, errdefs.ErrInvalidArgument)
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// RemoveContainer takes a container's part of the share away. The unmounts
// are lazy: the daemon may hold files that the guest has not forgotten yet.
func (s *Share) RemoveContainer(id string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil // Close has taken it along
	}
	return s.removeContainer(id)
}

// removeContainer must be called with mu held.
func (s *Share) removeContainer(id string) error {
	dir := filepath.Join(s.opts.Dir, id)
	points := []string{filepath.Join(dir, "rootfs")}
	mounts, err := os.ReadDir(filepath.Join(dir, "mounts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unshare container: %w", err)
	}
	for _, m := range mounts {
		points = append(points, filepath.Join(dir, "mounts", m.Name()))
	}
	for _, p := range points {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unshare container: unmount %s: %w", p, err)
		}
	}
	if err := removeEmptyTree(dir); err != nil {
		return fmt.Errorf("unshare container: %w", err)
	}
	return nil
}
