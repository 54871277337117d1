package passthrough

import (
	"slices"

	"golang.org/x/sys/unix"
)

// The guest sees a tree as one file system, with one st_dev. Some of the host's have
// several in one mount: overlayfs whose layers are on different file systems gives a
// layer's files a device, and numbers of their own (Linux, Documentation/filesystems/
// overlayfs.rst, "Inode properties"). So the number that the guest is given says which
// device it is of, or tar and cp would take two files with names elsewhere for one.

const (
	// deviceBit is the lowest bit of the device in a number. The highest bit is left
	// alone, for programs that count with signs.
	deviceBit = 51
	// maxDevices is the most devices of a tree that are told apart, beside the
	// directories'.
	maxDevices = 1<<(63-deviceBit) - 1
)

// device returns the number of a file's device in its tree: 0 for that of the directory,
// dir, and when there are too many. The inode numbers of these are the host's. The caller
// holds table.mu.
func (t *tree) device(dir *node, k key, kind uint32) uint16 {
	// Directories with another device, and what is mounted, are file systems in the guest.
	if k.dev == dir.key.dev || kind == unix.S_IFDIR || t != dir.tree {
		return 0
	}
	at := slices.Index(t.devices, k.dev)
	if at < 0 && len(t.devices) < maxDevices {
		at = len(t.devices)
		t.devices = append(t.devices, k.dev)
	}
	return uint16(at + 1)
}

// inode returns the number that the guest is given for a file with the host's number.
func (n *node) inode(host uint64) uint64 {
	if host>>deviceBit != 0 {
		return host // no room: such numbers are hardly the same on two devices
	}
	return host | uint64(n.device)<<deviceBit
}

// withDevice returns a directory entry's number as its file's attributes have it. A mount
// point's is that of the directory below the mount, as on the host.
func withDevice(host, attribute uint64) uint64 {
	if attribute&(1<<deviceBit-1) == host {
		return attribute
	}
	return host
}
