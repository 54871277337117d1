package api

// CharDevice is a character device of the kernel's own that a container may
// get: it stands for software, which every kernel has alike, and not for
// hardware of the host's.
type CharDevice struct {
	// Name is the node's path below /dev, as the kernel names it.
	Name string
	// Major and Minor are its number where that is fixed (Linux's
	// Documentation/admin-guide/devices.txt); Dynamic has Minor -1.
	Major, Minor int64
	// Module is the module that it comes with; empty when it is always there,
	// or is there or not without our doing.
	Module string
	// Common: programs of all containers use it, so its mode and owner in the
	// guest are not one container's to change.
	Common bool
}

// Dynamic is the Minor of a device whose number each kernel chooses.
const Dynamic = -1

// CharDevices are all of them. What is not here is hardware of the host's, or
// would show more of the guest than its containers may see (mem, port, console).
var CharDevices = []CharDevice{
	{Name: "null", Major: 1, Minor: 3, Common: true},
	{Name: "zero", Major: 1, Minor: 5, Common: true},
	{Name: "full", Major: 1, Minor: 7, Common: true},
	{Name: "random", Major: 1, Minor: 8, Common: true},
	{Name: "urandom", Major: 1, Minor: 9, Common: true},
	{Name: "kmsg", Major: 1, Minor: 11},
	{Name: "tty", Major: 5, Minor: 0, Common: true},
	{Name: "ptmx", Major: 5, Minor: 2, Common: true},
	{Name: "hwrng", Major: 10, Minor: 183},
	{Name: "net/tun", Major: 10, Minor: 200, Module: "tun"},
	{Name: "cuse", Major: 10, Minor: 203, Module: "cuse"},
	{Name: "uinput", Major: 10, Minor: 223, Module: "uinput"},
	{Name: "fuse", Major: 10, Minor: 229, Module: "fuse"},
	{Name: "kvm", Major: 10, Minor: 232},
	{Name: "btrfs-control", Major: 10, Minor: 234, Module: "btrfs"},
	{Name: "autofs", Major: 10, Minor: 235, Module: "autofs4"},
	{Name: "mapper/control", Major: 10, Minor: 236, Module: "dm_mod"},
	{Name: "loop-control", Major: 10, Minor: 237, Module: "loop"},
	{Name: "vhost-net", Major: 10, Minor: 238, Module: "vhost_net"},
	{Name: "uhid", Major: 10, Minor: 239, Module: "uhid"},
	{Name: "vhost-vsock", Major: 10, Minor: 241, Module: "vhost_vsock"},
	{Name: "ppp", Major: 108, Minor: 0, Module: "ppp_generic"},
	{Name: "userfaultfd", Major: 10, Minor: Dynamic},
	{Name: "vsock", Major: 10, Minor: Dynamic},
}
