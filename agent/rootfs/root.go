package rootfs

import (
	"errors"
	"fmt"
	"path"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// Root is a container's root file system while it is built. All of its methods
// block, and are for the thread that called [Open].
type Root struct {
	config *configs.Config
	// path is where the root is mounted, as the kernel shows it, until Enter.
	path string
	// fd is the root of its mount, proc the agent's own /proc.
	fd, proc int
	// writable has the mounts that Finish makes read-only.
	writable []place
}

// Open sets the propagation of the namespace's mounts, makes config.Rootfs a
// mount, and opens it. The caller owns the result.
//
// Preconditions: [Unsupported] is ""; the calling thread is locked
// (runtime.LockOSThread), shares no root and working directory with other
// threads (unshare(2), CLONE_FS), and is in the container's new mount namespace
// and in its IPC, UTS and network namespaces.
func Open(config *configs.Config) (*Root, error) {
	if err := mountRoot(config); err != nil {
		return nil, fmt.Errorf("error preparing rootfs: %w", err)
	}
	r := &Root{config: config, fd: -1, proc: -1}
	if err := r.openBoth(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Root) openBoth() (err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if r.fd, err = unix.Open(r.config.Rootfs, flags, 0); err != nil {
		return fmt.Errorf("open rootfs %s: %w", r.config.Rootfs, err)
	}
	if r.proc, err = unix.Open("/proc", flags, 0); err != nil {
		return fmt.Errorf("open /proc: %w", err)
	}
	r.path, err = pathOf(r.fd)
	return err
}

// Close closes what is open. It unmounts nothing: the mounts end with the last
// process of their namespace. Close may be called again.
func (r *Root) Close() error {
	var errs []error
	for _, p := range r.writable {
		errs = append(errs, unix.Close(p.fd))
	}
	r.writable = nil
	for _, fd := range []*int{&r.fd, &r.proc} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// mountRoot binds the root onto itself, since pivot_root(2) wants a mount.
func mountRoot(config *configs.Config) error {
	propagation := unix.MS_SLAVE | unix.MS_REC
	if config.RootPropagation != 0 {
		propagation = config.RootPropagation
	}
	if err := mountAt("", "/", uintptr(propagation)); err != nil {
		return err
	}
	if err := unshareParent(config); err != nil {
		return err
	}
	return mountAt(config.Rootfs, config.Rootfs, unix.MS_BIND|unix.MS_REC)
}

// unshareParent makes sure that the mount that has the root is not shared:
// pivot_root(2) refuses that, and the root's mount would propagate.
func unshareParent(config *configs.Config) error {
	flags := uintptr(unix.MS_PRIVATE)
	if config.RootPropagation&unix.MS_SLAVE != 0 {
		flags = unix.MS_SLAVE
	}
	at := config.Rootfs
	for {
		err := mountAt("", at, flags)
		// EINVAL: at is not a mount (mount(2)).
		if !errors.Is(err, unix.EINVAL) || at == "/" {
			return err
		}
		at = path.Dir(at)
	}
}
