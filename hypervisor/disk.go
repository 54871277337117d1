package hypervisor

import "os"

// Disk is a block device in the guest, backed by a file or a block device of
// the host. The file holds the raw blocks: there is no image format.
type Disk struct {
	// ID is a device's ID of at most 26 bytes.
	ID string
	// File is an open regular file or block device, read-only for a ReadOnly
	// disk and for reading and writing otherwise. The caller owns it: Attach
	// passes on a duplicate, and the VMM opens no path. Cache.Direct sets
	// O_DIRECT on it (the open file is shared, open(2)). It must not shrink
	// while it is attached. A VMM that locks files refuses a file that another
	// one has open, if either of them writes.
	File *os.File
	// ReadOnly prevents the guest from writing.
	ReadOnly bool
	// Bus is the bus on which the guest sees the disk.
	Bus DiskBus
	// Cache is how the host caches the data.
	Cache DiskCache
	// AIO is how the VMM waits for the host's disk; empty is AIOThreads.
	AIO DiskAIO
	// Serial is what the guest reads as the disk's serial number, at most 20
	// printable ASCII bytes (virtio 1.2, section 5.2.6.1); it may be empty.
	Serial string
	// LogicalBlockSize and PhysicalBlockSize are in bytes, powers of two from
	// 512 to 65536, the logical one not above the physical one; 0 is the VMM's
	// default, for the physical one the logical one's. If the length is not a
	// multiple of the logical size, the remainder at the end is lost.
	LogicalBlockSize, PhysicalBlockSize uint32
}

// DiskBus is how a disk is attached.
type DiskBus string

// The buses of disks.
const (
	// VirtioBlk makes the disk its own PCI device, of which a machine
	// has few.
	VirtioBlk DiskBus = "virtio-blk"
	// VirtioSCSI makes it a LUN of the machine's only SCSI controller, which is
	// attached with the first such disk and stays: 256 disks for one PCI
	// device.
	VirtioSCSI DiskBus = "virtio-scsi"
)

// DiskCache is how the host caches a disk's data. The zero value caches reads
// and writes in the host's page cache and honours the guest's flushes.
type DiskCache struct {
	// Direct bypasses the host's page cache (O_DIRECT).
	Direct bool
	// NoFlush ignores the guest's flushes: this is fast, but the guest's writes
	// may be lost when the host crashes.
	NoFlush bool
}

// DiskAIO is how a VMM waits for the host's disk.
type DiskAIO string

// The kinds of asynchronous I/O. A VMM or a kernel that lacks one refuses the
// disk.
const (
	// AIOThreads uses blocking threads. It works everywhere.
	AIOThreads DiskAIO = "threads"
	// AIONative is Linux's older asynchronous I/O (io_submit(2)); it needs
	// Cache.Direct.
	AIONative DiskAIO = "native"
	// AIOUring is io_uring(7).
	AIOUring DiskAIO = "io_uring"
)

// DeviceID implements Device.
func (d Disk) DeviceID() string { return d.ID }
