package passthrough

import (
	"slices"

	"golang.org/x/sys/unix"
)

// The guest sees a tree as one file system, with one st_dev, and with it the files that are
// mounted in it one by one. Each of these has the device of its file system on the host.
// Some file systems have several in one mount: overlayfs whose layers are on different file
// systems gives a layer's files a device, and numbers of their own (Linux, Documentation/
// filesystems/overlayfs.rst, "Inode properties"). So the number that the guest is given says
// which device it is of, or tar, cp and cmp would take two files for one with two names.

const (
	// deviceBit is the lowest bit of the device in a number. Numbers stay below 2^53,
	// which a double keeps whole (JSON).
	deviceBit = 40
	// maxDevices is the most devices of a tree that are told apart, beside the
	// directories'.
	maxDevices = 1<<12 - 1
)

// device returns the number of the device of a file in its tree, that of the directory,
// dir: 0 for the directory's device, and when there are too many. The inode numbers of
// these are the host's. The caller holds mu.
func (tb *table) device(dir *node, k key, kind uint16) uint16 {
	// Directories with another device, and those that are mounted, are file systems in
	// the guest.
	if k.dev == dir.key.dev || kind == unix.S_IFDIR {
		return 0
	}
	t := dir.tree
	if at := slices.Index(t.devices, k.dev); at >= 0 {
		return uint16(at)
	}
	t.growDevices(tb.savedDevices) // those keep their numbers
	switch {
	case t.id == shareTree && t.devices[0] == 0:
		// No container sees a file of the share's own device, so the first one's files,
		// such as /etc/hosts, have the host's numbers: a 32-bit program without large
		// file support cannot stat a file with a greater one (EOVERFLOW).
		t.devices[0] = k.dev
		return 0
	case len(t.devices) > maxDevices:
		return 0
	}
	t.devices = append(t.devices, k.dev)
	return uint16(len(t.devices) - 1)
}

// keepDevice gives a device the number that it had when the node's state was saved,
// unless that is 0, or another has it by now. The caller holds table.mu.
func (t *tree) keepDevice(dev uint32, number uint16) {
	if number == 0 || slices.Contains(t.devices, dev) {
		return
	}
	t.growDevices(number)
	if t.devices[number] == 0 {
		t.devices[number] = dev
	}
}

// growDevices makes room for the numbers up to one. No file has the device 0, which those
// that are free have.
func (t *tree) growDevices(number uint16) {
	if missing := int(number) + 1 - len(t.devices); missing > 0 {
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
