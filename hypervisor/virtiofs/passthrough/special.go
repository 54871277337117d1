package passthrough

import (
	"golang.org/x/sys/unix"
)

// Special is what a guest may make in a mount of the share that gives rights on the host to
// a user who finds it there. The share's own mounts do not honour it (nodev, nosuid), but the
// host reaches the same file system by another mount.
type Special struct {
	// Devices are device nodes. A character device with the number 0:0 is none: it is an
	// overlayfs's mark of a deleted file, which needs no capability (fs/namei.c, vfs_mknod).
	Devices bool
	// Capabilities are those of files (security.capability).
	Capabilities bool
}

// fileCapabilities is the attribute that gives a program capabilities (capabilities(7)).
const fileCapabilities = "security.capability"

// isDevice reports whether mknod makes a device node.
func isDevice(mode, rdev uint32) bool {
	kind := mode & unix.S_IFMT
	return kind == unix.S_IFBLK || kind == unix.S_IFCHR && rdev != 0
}

// allows returns what the guest may make in a tree now.
func (fs *FS) allows(t *tree) Special { return fs.opts.Special(t.path) }
