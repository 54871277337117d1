package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/ownthread"
)

// PinNamespaces makes one IPC and one UTS namespace and pins them as the files
// "ipc" and "uts" below dir, so that they exist without a process.
//
// It also mounts the file systems "mqueue" (that IPC namespace's) and "sysfs"
// there. A container in a user namespace cannot mount these itself: the kernel
// allows that only to the owner of an IPC or network namespace.
func PinNamespaces(dir string) error {
	// Searchable by all: the root user of a container's user namespace
	// traverses the parent directory on the way to its root file system.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make namespace directory: %w", err)
	}
	return ownthread.Run(func() error { return unshareAndPin(dir) })
}

func unshareAndPin(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare ipc and uts: %w", err)
	}
	for _, kind := range []string{"ipc", "uts"} {
		if err := PinNamespace("/proc/thread-self/ns/"+kind, filepath.Join(dir, kind)); err != nil {
			return err
		}
	}
	for _, fstype := range []string{"mqueue", "sysfs"} {
		if err := mountOwn(fstype, filepath.Join(dir, fstype)); err != nil {
			return err
		}
	}
	return nil
}

func mountOwn(fstype, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	// Without flags: a bind mount of it has those of its source unless it sets some.
	err := unix.Mount(fstype, target, fstype, 0, "")
	if err != nil && !errors.Is(err, unix.ENODEV) { // ENODEV: the kernel has no mqueue.
		return fmt.Errorf("mount %s: %w", fstype, err)
	}
	return nil
}

// PinNamespace bind-mounts the namespace file ns on path, which is made.
func PinNamespace(ns, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make namespace file: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make namespace file: %w", err)
	}
	if err := unix.Mount(ns, path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("pin namespace %s: %w", ns, err), os.Remove(path))
	}
	return nil
}

// HasOwnNamespace reports whether a process is in a different namespace of that
// kind than the agent.
func HasOwnNamespace(pid uint32, kind string) (bool, error) {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false, fmt.Errorf("inspect namespace: %w", err)
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return false, fmt.Errorf("inspect namespace of process %d: %w", pid, err)
	}
	return own != its, nil
}

// UnpinNamespace undoes PinNamespace.
func UnpinNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unpin namespace %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin namespace: %w", err)
	}
	return nil
}
