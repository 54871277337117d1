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
	// deviceBit is the lowest bit of the device in a number. Numbers stay below 2^53,
	// which a double keeps whole (JSON).
	deviceBit = 40
	// maxDevices is the most devices of a tree that are told apart, beside the
	// directories'.
	maxDevices = 1<<12 - 1
)

// device returns the number of a file's device in its tree: 0 for that of the directory,
// dir, and when there are too many. The inode numbers of these are the host's. The caller
// holds mu.
func (tb *table) device(t *tree, dir *node, k key, kind uint16) uint16 {
	// Directories with another device, and what is mounted, are file systems in the guest.
	if k.dev == dir.key.dev || kind == unix.S_IFDIR || t != dir.tree {
		return 0
	}
	if at := slices.Index(t.devices, k.dev); at >= 0 {
		return uint16(at + 1)
	}
	t.growDevices(tb.savedDevices) // those keep their numbers
	if len(t.devices) == maxDevices {
		return 0
	}
	t.devices = append(t.devices, k.dev)
	return uint16(len(t.devices))
}

// keepDevice gives a device the number that it had when the node's state was saved,
// unless that is 0, or another has it by now. The caller holds table.mu.
func (t *tree) keepDevice(dev uint32, number uint16) {
	if number == 0 || slices.Contains(t.devices, dev) {
		return
	}
	t.growDevices(number)
	if t.devices[number-1] == 0 {
		t.devices[number-1] = dev
	}
}

// growDevices makes room for a number of devices, of which no file has 0.
func (t *tree) growDevices(n uint16) {
	if missing := int(n) - len(t.devices); missing > 0 {
		t.devices = append(t.devices, make([]uint32, missing)...)
	}
}

// inode returns the number that the guest is given for a file with the host's number.
func (n *node) inode(host uint64) uint64 {
	if host>>deviceBit != 0 {
		return host // no room: such numbers are hardly the same on two devices
	}
	return host | uint64(n.device)<<deviceBit
}

// withDevice returns a directory entry's number as its file's attributes have it. A mount
// point's is that of the directory below the mount, as on the host. An entry that is
// listed without attributes has the host's number.
func withDevice(host, attribute uint64) uint64 {
	if attribute&(1<<deviceBit-1) == host {
		return attribute
	}
	return host
}
