package standin

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// View is what a stand-in's root shows.
type View struct {
	// Root is a detached mount of the container's root file system (Clone); nil
	// is an empty read-only directory.
	Root *os.File
	// ReadOnly prevents changes to the root file system through the view.
	ReadOnly bool
	// Mounts are what the container has mounted in it, in order.
	Mounts []Mount
}

// Mount is one mount in a View.
type Mount struct {
	// Target is an absolute path in the container.
	Target string
	// Tree is the detached mount for that path. It is nil for what exists only
	// in the guest: an empty read-only directory is mounted instead, so that a
	// write fails rather than being lost.
	Tree *os.File
	// ReadOnly prevents changes to Tree through the view.
	ReadOnly bool
}

// emptyOptions are for directories that show nothing.
const emptyOptions = "mode=0555,size=4k,nr_inodes=1"

const emptyFlags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// makeView mounts a view at viewDir; it runs on the host's thread. A mount
// whose target does not exist is skipped.
func makeView(v View) error {
	if v.Root == nil {
		err := unix.Mount("katabox", viewDir, "tmpfs", emptyFlags, emptyOptions)
		return os.NewSyscallError("mount", err)
	}
	if err := moveRoot(v); err != nil {
		return err
	}
	root, err := unix.Open(viewDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(os.NewSyscallError("open", err), unix.Unmount(viewDir, unix.MNT_DETACH))
	}
	defer unix.Close(root)
	for _, m := range v.Mounts {
		if err := addMount(root, m); err != nil {
			return errors.Join(fmt.Errorf("show %s: %w", m.Target, err), unix.Unmount(viewDir, unix.MNT_DETACH))
		}
	}
	return forbidLinks(root)
}

// forbidLinks prevents the container's symbolic links from being followed: for
// a host process that works below /proc/PID/root they would lead out of it.
// Before Linux 5.14 they are followed.
func forbidLinks(root int) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW}
	err := unix.MountSetattr(root, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return os.NewSyscallError("mount_setattr", err)
}

// moveRoot mounts the root file system such that nothing mounted in it here
// shows on the host.
func moveRoot(v View) error {
	if err := restrict(v.Root, v.ReadOnly); err != nil {
		return err
	}
	if err := unix.MoveMount(int(v.Root.Fd()), "", unix.AT_FDCWD, viewDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	return nil
}

// restrict disables on a mount what a container could use against a host
// process that works in it: devices and set-user-ID programs. The mount becomes
// a slave: what is mounted in it does not show on the host.
func restrict(tree *os.File, readOnly bool) error {
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID,
		Propagation: unix.MS_SLAVE,
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	return os.NewSyscallError("mount_setattr", err)
}

// addMount mounts what the container has at m.Target, resolved within the
// container's root: no link leads out of it.
func addMount(root int, m Mount) error {
	target, err := unix.Openat2(root, m.Target, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil // its target exists only in the guest, or not at all
	}
	defer unix.Close(target)
	if m.Tree == nil {
		return addEmpty(target)
	}
	if err := restrict(m.Tree, m.ReadOnly); err != nil {
		return err
	}
	err = unix.MoveMount(int(m.Tree.Fd()), "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if errors.Is(err, unix.ENOTDIR) {
		return nil // the container has a file in place of a directory, or the reverse
	}
	return os.NewSyscallError("move_mount", err)
}

// addEmpty mounts an empty directory at target, unless that is a file.
func addEmpty(target int) error {
	if err := unix.Fchdir(target); err != nil {
		return nil //nolint:nilerr // a file
	}
	err := unix.Mount("katabox", ".", "tmpfs", emptyFlags, emptyOptions)
	return errors.Join(os.NewSyscallError("mount", err), os.NewSyscallError("chdir", unix.Chdir("/")))
}
