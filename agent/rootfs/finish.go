package rootfs

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Finish makes read-only what the config has so, writes its sysctls, and places
// its read-only and masked paths. It is called after Enter.
func (r *Root) Finish() error {
	for _, mounted := range r.writable {
		if err := retryReadonly(mounted); err != nil {
			return err
		}
	}
	if r.config.Readonlyfs {
		// A remount would clear the mount's other flags, such as nosuid.
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("error setting rootfs as readonly: %w", err)
		}
	}
	if err := r.writeSysctls(); err != nil {
		return err
	}
	for _, name := range r.config.ReadonlyPaths {
		if err := r.readonlyPath(name); err != nil {
			return fmt.Errorf("can't make %q read-only: %w", name, err)
		}
	}
	return r.maskPaths()
}

// retryReadonly makes a mount read-only. A process that runs in the mounts before
// the container starts, such as a hook, may have a file in it open.
func retryReadonly(mounted place) error {
	const tries, pause = 5, 100 * time.Millisecond
	for range tries {
		err := setReadonly(mounted.fd)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return mountError("", mounted.name, unix.MS_REMOUNT|unix.MS_RDONLY, "", err)
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("unable to mount %s as readonly max retries reached", mounted.name)
}

// writeSysctls writes through the agent's own /proc: the container's may be
// missing, or something else. The kernel takes the sysctls of the namespaces that
// the thread is in.
func (r *Root) writeSysctls() error {
	for key, value := range r.config.Sysctl {
		how := unix.OpenHow{
			Flags:   unix.O_WRONLY | unix.O_TRUNC | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		}
		fd, err := openat2(r.proc, "sys/"+strings.ReplaceAll(key, ".", "/"), &how)
		if err != nil {
			return fmt.Errorf("open sysctl %s file: %w", key, err)
		}
		_, err = unix.Write(fd, []byte(value))
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("failed to write sysctl %s = %q: %w", key, value, err)
		}
	}
	return nil
}

// readonlyPath mounts a read-only copy of a path onto it, if it exists. The
// mounts below are copied as they are.
func (r *Root) readonlyPath(name string) error {
	at, err := r.open(name, unix.O_PATH, 0)
	if err != nil {
		return r.ignoreMissing(name, err)
	}
	defer unix.Close(at)
	tree, err := cloneTree(at, "", true)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := setReadonly(tree); err != nil {
		return err
	}
	return attach(tree, at)
}

// ignoreMissing returns err, with which the path name was not opened, unless it is missing.
// One that leads to the process's own files may exist for the process.
func (r *Root) ignoreMissing(name string, err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if at, ok := r.leadsToOwn(name); ok {
		return fmt.Errorf("it leads to %s, which is the process's own: name that path instead", at)
	}
	return nil
}
