package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
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
	if err := s.space.bind(rootfs, rootfsPoint(id), guestspec.Bind{Recursive: true, Slave: true}); err != nil {
		return paths, fmt.Errorf("share rootfs: %w", err)
	}
	paths.Rootfs = path.Join(api.GuestSharedDir, rootfsPoint(id))
	for _, b := range binds {
		target := path.Join(mountsDir(id), strconv.Itoa(b.Index))
		if err := s.space.bind(b.Source, target, b); err != nil {
			return paths, fmt.Errorf("share mount: %w", err)
		}
		if paths.Writable[b.Index], err = s.space.hasWritableBelow(target, b); err != nil {
			return paths, fmt.Errorf("share mount: %w", err)
		}
		paths.Binds[b.Index] = path.Join(api.GuestSharedDir, target)
	}
	return paths, nil
}

// Where a container's files are in the share.
func containerDir(id string) string { return "/" + id }
func rootfsPoint(id string) string  { return path.Join(containerDir(id), "rootfs") }
func mountsDir(id string) string    { return path.Join(containerDir(id), "mounts") }

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
	if err := s.space.do(func() error { return removeTree(id) }); err != nil {
		return fmt.Errorf("unshare container: %w", err)
	}
	return nil
}

// removeTree runs on the space's thread.
func removeTree(id string) error {
	points := []string{rootfsPoint(id)}
	mounts, err := os.ReadDir(mountsDir(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, m := range mounts {
		points = append(points, path.Join(mountsDir(id), m.Name()))
	}
	for _, p := range points {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return removeEmptyTree(containerDir(id))
}
