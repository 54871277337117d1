package api

// CharDevice is a character device that a container may get from the guest's
// kernel: it is implemented in software, the same in every kernel, and does not
// stand for the host's hardware.
type CharDevice struct {
	// Name is the node's path below /dev, as the kernel names it.
	Name string
	// Major and Minor are its number where that is fixed (Linux's
	// Documentation/admin-guide/devices.txt); Dynamic has Minor -1.
	Major, Minor int64
	// Module is the module that provides it; empty if no module is to be
	// loaded.
	Module string
	// Common is set if programs of all containers use it, so that one container
	// must not change its mode and owner in the guest.
	Common bool
	// Mode is what a privileged container's node has if the engine does not say it,
	// as Debian's udev sets it; 0 if such a container has no use for the device, or
	// has it as any other container does.
	Mode uint32
}

// LoopDevices is how many loop devices a guest has: as many as its kernel begins with
// (Linux's CONFIG_BLK_DEV_LOOP_MIN_COUNT).
const LoopDevices = 8

// Dynamic is the Minor of a device whose number the kernel chooses.
const Dynamic = -1

// CharDevices has all of them. Others are hardware of the host, or would show
// more of the guest than its containers may see (mem, port, console).
var CharDevices = []CharDevice{
	{Name: "null", Major: 1, Minor: 3, Common: true},
	{Name: "zero", Major: 1, Minor: 5, Common: true},
	{Name: "full", Major: 1, Minor: 7, Common: true},
	{Name: "random", Major: 1, Minor: 8, Common: true},
	{Name: "urandom", Major: 1, Minor: 9, Common: true},
	{Name: "kmsg", Major: 1, Minor: 11, Mode: 0o644},
	{Name: "tty", Major: 5, Minor: 0, Common: true},
	{Name: "ptmx", Major: 5, Minor: 2, Common: true},
	{Name: "hwrng", Major: 10, Minor: 183, Mode: 0o600},
	{Name: "net/tun", Major: 10, Minor: 200, Mode: 0o666, Module: "tun"},
	{Name: "cuse", Major: 10, Minor: 203, Mode: 0o600, Module: "cuse"},
	{Name: "uinput", Major: 10, Minor: 223, Mode: 0o600, Module: "uinput"},
	{Name: "fuse", Major: 10, Minor: 229, Mode: 0o666, Module: "fuse"},
	{Name: "kvm", Major: 10, Minor: 232, Mode: 0o660},
	{Name: "btrfs-control", Major: 10, Minor: 234, Mode: 0o660, Module: "btrfs"},
	{Name: "autofs", Major: 10, Minor: 235, Mode: 0o600, Module: "autofs4"},
	{Name: "mapper/control", Major: 10, Minor: 236, Mode: 0o600, Module: "dm_mod"},
	{Name: "loop-control", Major: 10, Minor: 237, Mode: 0o660, Module: "loop"},
	{Name: "vhost-net", Major: 10, Minor: 238, Mode: 0o600, Module: "vhost_net"},
	{Name: "uhid", Major: 10, Minor: 239, Mode: 0o600, Module: "uhid"},
	{Name: "vhost-vsock", Major: 10, Minor: 241, Mode: 0o600, Module: "vhost_vsock"},
	{Name: "ppp", Major: 108, Minor: 0, Mode: 0o600, Module: "ppp_generic"},
	{Name: "userfaultfd", Major: 10, Minor: Dynamic},
	{Name: "vsock", Major: 10, Minor: Dynamic},
}
