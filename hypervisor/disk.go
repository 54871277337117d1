package hypervisor

import "os"

// Disk is a block device of the guest's over a file or a block device of the
// host. Its blocks are the file's, as they are: no image format.
type Disk struct {
	// ID is a device's ID of at most 26 bytes.
	ID string
	// File is an open regular file or block device, read-only for a ReadOnly
	// disk and for reading and writing else. It stays the caller's: Attach
	// passes a duplicate on, and the monitor opens no path. Cache.Direct sets
	// O_DIRECT on it (the open file is shared, open(2)). It must not shrink
	// while it is attached. A monitor that locks files refuses what another
	// one has for writing, or wants to write what another one has.
	File *os.File
	// ReadOnly keeps the guest from writing.
	ReadOnly bool
	// Bus is what the guest sees the disk on.
	Bus DiskBus
	// Cache is what the host does with the data.
	Cache DiskCache
	// AIO is how the monitor waits for the host's disk; empty is AIOThreads.
	AIO DiskAIO
	// Serial is what the guest reads as the disk's serial number, at most 20
	// printable ASCII bytes (virtio 1.2, section 5.2.6.1); it may be empty.
	Serial string
	// LogicalBlockSize and PhysicalBlockSize are in bytes, powers of two from
	// 512 to 65536, the logical one not above the physical one; 0 leaves it
	// to the monitor, and a physical one to the logical one. A length that is not a multiple of the logical size loses
	// its end.
	LogicalBlockSize, PhysicalBlockSize uint32
}

// DiskBus is how a disk is attached.
type DiskBus string

// The buses of disks.
const (
	// VirtioBlk makes the disk its own PCI device, of which a machine
	// has few.
	VirtioBlk DiskBus = "virtio-blk"
	// VirtioSCSI makes it a LUN of the machine's one SCSI controller, which
	// comes with the first of them and stays: 256 disks for one PCI device.
	VirtioSCSI DiskBus = "virtio-scsi"
)

// DiskCache is what the host does with a disk's data. The zero value caches
// reads and writes in the host's page cache and honours the guest's flushes.
type DiskCache struct {
	// Direct goes past the host's page cache (O_DIRECT).
	Direct bool
	// NoFlush ignores the guest's flushes: fast, and whatever the guest
	// wrote may be lost when the host dies.
	NoFlush bool
}

// DiskAIO is how a monitor waits for the host's disk.
type DiskAIO string

// The kinds of asynchronous I/O. A monitor or a kernel that lacks one refuses
// the disk.
const (
	// AIOThreads lets threads wait. It works everywhere.
	AIOThreads DiskAIO = "threads"
	// AIONative is Linux's older asynchronous I/O (io_submit(2)); it needs
	// Cache.Direct.
	AIONative DiskAIO = "native"
	// AIOUring is io_uring(7).
	AIOUring DiskAIO = "io_uring"
)

// DeviceID implements Device.
func (d Disk) DeviceID() string { return d.ID }
