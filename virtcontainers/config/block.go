package config

// The values of Hypervisor.BlockDriver.
const (
	// BlockSCSI puts disks on one virtio-scsi controller.
	BlockSCSI = "virtio-scsi"
	// BlockVirtio gives each disk a virtio-blk device.
	BlockVirtio = "virtio-blk"
)

// The values of Hypervisor.BlockAIO; the words are QEMU's.
const (
	// AIOUring is Linux's io_uring.
	AIOUring = "io_uring"
	// AIONative is Linux's asynchronous I/O (io_submit(2)): only for files
	// opened with O_DIRECT.
	AIONative = "native"
	// AIOThreads is a pool of threads.
	AIOThreads = "threads"
)

// BlockCache says how much of disks the host caches.
type BlockCache struct {
	// Set puts the other fields into effect; otherwise QEMU's defaults apply.
	Set bool
	// Direct bypasses the host's page cache; NoFlush ignores the guest's
	// flushes, so that a crash of the host loses the data.
	Direct, NoFlush bool
}

// BlockThreads returns how many of QEMU's threads serve disks alone; with 0 its
// main loop does.
func (h Hypervisor) BlockThreads() uint32 {
	if h.IOThreads {
		return max(h.IndepIOThreads, 1)
	}
	return h.IndepIOThreads
}

// maxIOThreads is Kata's.
const maxIOThreads = 50

const minSectorSize, maxSectorSize = 512, 64 << 10

var blockKeys = []key{
	define("hypervisor.qemu.disable_block_device_use", true, boolean,
		func(d *draft) *bool { return &d.Hypervisor.DisableBlockRootfs },
		"Mount a container's root file system on the host and share it even when it is a block device, instead of giving "+
			"the guest the disk.").
		annotated("config.hypervisor.disable_block_device_use"),
	define("hypervisor.qemu.block_device_driver", BlockSCSI,
		oneOf(`"virtio-scsi" or "virtio-blk"; disks do not come as nvdimm, virtio-mmio or virtio-blk-ccw`, BlockSCSI, BlockVirtio),
		func(d *draft) *string { return &d.Hypervisor.BlockDriver },
		"How the guest sees disks: on one virtio-scsi controller, or each as its own virtio-blk device, of which there "+
			"is room for fewer.").orDefault().
		annotated("config.hypervisor.block_device_driver"),
	define("hypervisor.qemu.block_device_aio", AIOUring, oneOf("", AIOUring, AIONative, AIOThreads),
		func(d *draft) *string { return &d.Hypervisor.BlockAIO },
		"How QEMU reads and writes disks: io_uring, native (Linux AIO: only for disks that bypass the page cache), or "+
			"threads. If the host lacks the chosen one, threads are used, with a warning.").orDefault().
		annotated("config.hypervisor.block_device_aio"),
	define("hypervisor.qemu.block_device_cache_set", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.BlockCache.Set },
		"Apply the two options below to disks. Without them a block device that a container gets as a device bypasses the host's "+
			"page cache, and other disks do not.").
		annotated("config.hypervisor.block_device_cache_set"),
	define("hypervisor.qemu.block_device_cache_direct", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.BlockCache.Direct },
		"Bypass the host's page cache, with all disks. With false and block_device_cache_set no disk does: a container's O_DIRECT is then not the "+
			"host's, which damages disks that several hosts write to.").
		annotated("config.hypervisor.block_device_cache_direct"),
	define("hypervisor.qemu.block_device_cache_noflush", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.BlockCache.NoFlush },
		"Ignore the guest's flushes: what it has written may be lost when the host crashes.").
		annotated("config.hypervisor.block_device_cache_noflush"),
	define("hypervisor.qemu.block_device_logical_sector_size", int64(0), sectorSize,
		func(d *draft) *uint32 { return &d.Hypervisor.BlockLogicalSector },
		"The logical sector size that the guest sees of disks, in bytes: a power of two from 512 to 65536; 0 is the disk's: a block "+
			"device's on the host, and 512 for a file.").
		annotated("config.hypervisor.blk_logical_sector_size"),
	define("hypervisor.qemu.block_device_physical_sector_size", int64(0), sectorSize,
		func(d *draft) *uint32 { return &d.Hypervisor.BlockPhysicalSector },
		"The physical sector size that the guest sees of disks, in bytes: a power of two from 512 to 65536, at least the "+
			"logical one; 0 is the disk's, as for the logical one.").
		annotated("config.hypervisor.blk_physical_sector_size"),
	define("hypervisor.qemu.enable_iothreads", false, boolean,
		func(d *draft) *bool { return &d.Hypervisor.IOThreads },
		"Serve the guest's disks in their own thread.").
		annotated("config.hypervisor.enable_iothreads"),
	define("hypervisor.qemu.indep_iothreads", int64(0),
		integer[uint32]("an integer from 1 to 50, or 0 for what enable_iothreads says", 0, maxIOThreads),
		func(d *draft) *uint32 { return &d.Hypervisor.IndepIOThreads },
		"How many such threads there are, among which virtio-blk disks are divided; 0 is one with enable_iothreads, and none "+
			"without. Disks on the virtio-scsi controller have one.").
		annotated("config.hypervisor.indep_iothreads"),
}

// volumeKeys are about volumes that do not reach the guest by the share.
var volumeKeys = []key{
	define("runtime.disable_guest_empty_dir", true, boolean,
		func(d *draft) *bool { return &d.guestEmptyDir },
		"Share emptyDir volumes on disk with the guest as directories of the host. With false each is a disk of the guest, as with "+
			"emptydir_mode = \"block-plain\". The kubelet measures the use of both.").
		negated(),
	define("runtime.emptydir_mode", EmptyDirShared,
		oneOf(`"shared-fs" or "block-plain"; nothing here encrypts disks for "block-encrypted"`, EmptyDirShared, EmptyDirBlock),
		func(d *draft) *string { return &d.Runtime.EmptyDirMode },
		"What an emptyDir volume on the host's disk is for the guest: shared-fs, a shared directory, or block-plain, a disk, which is a "+
			"file in that directory.").orDefault(),
	define("runtime.kubelet_root_dir", "/var/lib/kubelet", cleanPath,
		func(d *draft) *string { return &d.Runtime.KubeletDir },
		"The kubelet's directory (its --root-dir), used to recognise pods' volumes.").orDefault(),
	define("runtime.privileged_host_disks", []any{}, diskPaths,
		func(d *draft) *[]string { return &d.Runtime.PrivilegedHostDisks },
		"Disks of the host that a privileged container gets, if its spec lists all of the host's devices: paths below /dev, which may "+
			"contain shell wildcards, as in [\"/dev/sd[b-d]\", \"/dev/disk/by-id/ata-DATA_*\"]. Wildcards match no partitions. Disks that the "+
			"host has mounted or holds otherwise are left out. A disk that a container requests individually needs no entry."),
	define("runtime.sandbox_bind_mounts", []any{}, bindMounts,
		func(d *draft) *[]string { return &d.Runtime.SandboxBindMounts },
		`Directories and files of the host that the guest sees for all containers: "/path", read-only, or "/path:rw".`),
}
