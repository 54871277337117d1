package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
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

// removeWait bounds the removal of a container that could not be added.
const removeWait = 10 * time.Second

// AddContainer puts a container's bind mounts and, if it is not empty, its
// rootfs into the share, and returns where the guest finds them. On an error
// nothing is left.
func (s *Share) AddContainer(ctx context.Context, id, rootfs string, binds []guestspec.Bind) (_ Contents, err error) {
	if err := s.checkOpen(); err != nil {
		return Contents{}, fmt.Errorf("share rootfs: %w", err)
	}
	if id == podBindsName || id == podVolumesName || id == outputsName {
		return Contents{}, fmt.Errorf("share rootfs: the id %q is taken: %w", id, errdefs.ErrAlreadyExists)
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
			defer cancel()
			err = errors.Join(err, s.RemoveContainer(ctx, id))
		}
	}()
	var made Contents
	if rootfs != "" {
		if _, err := s.bind(ctx, rootfs, path.Join(id, rootfsName), guestspec.Bind{Recursive: true, Slave: true}); err != nil {
			return Contents{}, fmt.Errorf("share rootfs: %w", err)
		}
		made.Rootfs = path.Join(api.GuestSharedDir, id, rootfsName)
	}
	for _, b := range binds {
		name := path.Join(id, mountsName, cmp.Or(b.Name, strconv.Itoa(b.Index)))
		placed := guestspec.Placed{Bind: b, At: path.Join(api.GuestSharedDir, name)}
		if placed.Flags, err = s.bind(ctx, b.Source, name, b); err != nil {
			return Contents{}, fmt.Errorf("share mount: %w", err)
		}
		s.specials.allow(name, b)
		if placed.Writable, err = s.space.hasWritableBelow(s.dir(name), b); err != nil {
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

// bind mounts source at a name in the share. It returns what space.bind does.
func (s *Share) bind(ctx context.Context, source, name string, b guestspec.Bind) ([]string, error) {
	return s.space.bind(ctx, source, path.Join(pointsDir, name), s.dir(name), b)
}

// root returns the share's path in its space, and dir a path in the share there.
func (s *Share) root() string           { return rootOf(s.opts) }
func (s *Share) dir(name string) string { return path.Join(s.root(), name) }

// The share's root is one directory in two mounts of the space. The guest has the
// one below sharesDir, which is read-only and has the containers' mounts. The
// host makes and removes their mount points in pointsDir: the guest can neither
// rename them nor put anything beside them, and there is nothing mounted there.
const (
	sharesDir = "/share"
	pointsDir = "/points"
)

// rootOf returns a path with the sandbox's id, so that it shows in virtiofsd's
// command line.
func rootOf(opts ShareOptions) string { return path.Join(sharesDir, opts.ID) }

// makeRoot makes the share's root; it runs on the space's thread. The guest's
// users other than root must be able to traverse it.
func makeRoot(opts ShareOptions) error {
	root := rootOf(opts)
	for _, dir := range []string{pointsDir, path.Join(pointsDir, outputsName), sharesDir, root} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	if err := unix.Mount(pointsDir, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind the root: %w", err)
	}
	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", root, "", flags, ""); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return mountOutputs(root)
}

// idleWait bounds how long the requests of a container that has ended may take, and
// idlePoll is the interval of the checks. The first check finds nothing unless a file
// system of the host is slow.
const (
	idleWait = 2 * time.Second
	idlePoll = 2 * time.Millisecond
)

// AwaitIdle waits until the guest has nothing open in a container's part of the share,
// and in the volumes that no other container has mounted in the guest, and every answer
// about them. It returns false if that took longer than idleWait, or ctx ended. The
// container's processes must have ended; it is then removed.
func (s *Share) AwaitIdle(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	for _, dir := range append(s.volumes.unmounted(id), id) {
		for !s.served.idle(dir) {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(idlePoll):
			}
		}
	}
	return true
}

// RemoveContainer removes a container's part of the share, and the volumes that no
// other container uses. The unmounts are lazy: the server may hold files that the
// guest has not forgotten yet.
func (s *Share) RemoveContainer(ctx context.Context, id string) error {
	err := errors.Join(s.space.do(ctx, func() error { return s.removeTree(id) }), s.removeVolumes(ctx, s.volumes.leave(id)))
	if s.closed.Load() {
		return nil // Close removes it
	}
	s.specials.forget(id)
	// The source of a mount stays busy on the host while this process has it
	// open.
	s.drop(ctx, id)
	if err != nil {
		return fmt.Errorf("unshare container: %w", err)
	}
	return nil
}

// drop has the server close its files in directories that were unmounted. If a file
// system of the host hangs, they are closed when it answers, and the log says so: the
// container is gone all the same.
func (s *Share) drop(ctx context.Context, dirs ...string) {
	if err := s.served.drop(ctx, dirs); err != nil {
		log.G(ctx).WithError(err).Warn("files that a container has left open stay open on the host")
	}
}

// removeTree removes a container's mounts and mount points; it runs on the
// space's thread.
func (s *Share) removeTree(id string) error {
	points := path.Join(pointsDir, id)
	names := []string{rootfsName}
	mounts, err := os.ReadDir(path.Join(points, mountsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, m := range mounts {
		names = append(names, path.Join(mountsName, m.Name()))
	}
	for _, name := range names {
		if err := unmountAll(path.Join(s.dir(id), name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(points) // no point of a mount that is left: EBUSY
}

// unmountAll removes what is mounted at a path; the host may have mounted
// something over a volume.
func unmountAll(point string) error {
	for {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
}
