package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// Contents is where in the guest a container's part of the share is.
type Contents struct {
	// Rootfs is empty if the container's root file system is not in the share.
	Rootfs string
	// Binds are in the order in which they were given.
	Binds []guestspec.Placed
}

// AddContainer puts a container's bind mounts and, if it is not empty, its
// rootfs into the share, and returns where the guest finds them. On an error
// nothing is left.
func (s *Share) AddContainer(id, rootfs string, binds []guestspec.Bind) (_ Contents, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return Contents{}, fmt.Errorf("share rootfs: the share is closed: %w", errdefs.ErrFailedPrecondition)
	}
	if id == podBindsName {
		return Contents{}, fmt.Errorf("share rootfs: the id %q is taken: %w", id, errdefs.ErrAlreadyExists)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.removeContainer(id))
		}
	}()
	var made Contents
	if rootfs != "" {
		if err := s.space.bind(rootfs, path.Join(s.dir(id), rootfsName), guestspec.Bind{Recursive: true, Slave: true}); err != nil {
			return Contents{}, fmt.Errorf("share rootfs: %w", err)
		}
		made.Rootfs = path.Join(api.GuestSharedDir, id, rootfsName)
	}
	for _, b := range binds {
		name := path.Join(mountsName, strconv.Itoa(b.Index))
		target := path.Join(s.dir(id), name)
		if err := s.space.bind(b.Source, target, b); err != nil {
			return Contents{}, fmt.Errorf("share mount: %w", err)
		}
		placed := guestspec.Placed{Bind: b, At: path.Join(api.GuestSharedDir, id, name)}
		if placed.Writable, err = s.space.hasWritableBelow(target, b); err != nil {
			return Contents{}, fmt.Errorf("share mount: %w", err)
		}
		made.Binds = append(made.Binds, placed)
	}
	return made, nil
}

// The names in a container's directory of the share.
const (
	rootfsName = "rootfs"
	mountsName = "mounts"
)

// isRootfs reports whether a path of the share is a container's root file
// system's.
func isRootfs(where string) bool {
	id, name := path.Split(where)
	return name == rootfsName && id != podBindsName+"/" && strings.Count(id, "/") == 1
}

// root returns the share's path in its space, and dir a container's directory
// there.
func (s *Share) root() string         { return rootOf(s.opts) }
func (s *Share) dir(id string) string { return path.Join(s.root(), id) }

// sharesDir separates the share from everything else in the space, whatever the
// sandbox's name is.
const sharesDir = "/share"

// rootOf returns a path with the sandbox's id, so that it shows in virtiofsd's
// command line.
func rootOf(opts ShareOptions) string { return path.Join(sharesDir, opts.ID) }

// makeRoot makes the share's root; it runs on the space's thread. The guest's
// users other than root must be able to traverse it.
func makeRoot(opts ShareOptions) error {
	return errors.Join(os.Mkdir(sharesDir, 0o711), os.Mkdir(rootOf(opts), 0o711))
}

// RemoveContainer removes a container's part of the share. The unmounts are
// lazy: the daemon may hold files that the guest has not forgotten yet.
func (s *Share) RemoveContainer(id string) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil // Close has removed it
	}
	return s.removeContainer(id)
}

// removeContainer must be called with mu held.
func (s *Share) removeContainer(id string) error {
	err := s.space.do(func() error { return removeTree(s.dir(id)) })
	// The source of a mount stays busy on the host while this process has it
	// open.
	s.served.drop(id)
	if err != nil {
		return fmt.Errorf("unshare container: %w", err)
	}
	return nil
}

// removeTree removes a container's directory; it runs on the space's thread.
func removeTree(dir string) error {
	points := []string{path.Join(dir, rootfsName)}
	mounts, err := os.ReadDir(path.Join(dir, mountsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, m := range mounts {
		points = append(points, path.Join(dir, mountsName, m.Name()))
	}
	for _, p := range points {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return removeEmptyTree(dir)
}
