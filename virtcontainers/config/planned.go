package config

import "slices"

// withoutEffect is every key that Kata Containers has and that does nothing
// here, with Kata's defaults: planned, or refused.
var withoutEffect = slices.Concat(
	guestKeys, sizeKeys, diskKeys, hostDeviceKeys, limitKeys, confidentialKeys, cacheKeys, plannedAgentKeys, plannedRuntimeKeys)

// guestKeys are about what the guest boots and how it is watched.
var guestKeys = []key{
	later("hypervisor.qemu.image", "", absolutePath,
		"A guest image with a root file system, in place of the initrd.").
		annotated("config.hypervisor.image"),
	later("hypervisor.qemu.rootfs_type", "ext4", oneOf("", "ext4", "xfs", "erofs"),
		"The file system of that image."),
	later("hypervisor.qemu.disable_image_nvdimm", false, boolean,
		"Give the image to the guest as a disk and not as an NVDIMM.").
		annotated("config.hypervisor.disable_image_nvdimm"),
	later("hypervisor.qemu.kernel_verity_params", "", text,
		"The dm-verity parameters of that image.").
		annotated("config.hypervisor.kernel_verity_params"),
	never("hypervisor.qemu.guest_extension_images", []any{}, words,
		"the guest is one initramfs, to which modules are added when it is built"),
	later("hypervisor.qemu.firmware_volume", "", absolutePath,
		"A variable store for that firmware.").
		annotated("config.hypervisor.firmware_volume"),
	later("hypervisor.qemu.pflashes", []any{}, words,
		"Flash images for the guest's board."),
	later("hypervisor.qemu.hypervisor_loglevel", int64(0), count,
		"How much the monitor logs."),
	later("hypervisor.qemu.use_legacy_serial", false, boolean,
		"Use ttyS0 as the guest's console.").
		annotated("config.hypervisor.use_legacy_serial"),
	later("hypervisor.qemu.disable_selinux", false, boolean,
		"Run QEMU without its own SELinux label."),
	later("hypervisor.qemu.disable_guest_selinux", true, boolean,
		"Do not use SELinux in the guest."),
	never("hypervisor.qemu.disable_nesting_checks", false, boolean,
		"nothing here asks whether the host is itself a guest"),
	never("hypervisor.qemu.jailer_path", "", absolutePath,
		"only Firecracker has a jailer").
		annotated("config.hypervisor.jailer_path"),
	never("hypervisor.qemu.valid_jailer_paths", []any{}, words,
		"only Firecracker has a jailer"),
}

// sizeKeys are about CPUs and memory.
var sizeKeys = []key{
	later("hypervisor.qemu.memory_offset", int64(0), count,
		"Further address space for NVDIMMs, in MiB.").
		annotated("config.hypervisor.memory_offset"),
	later("hypervisor.qemu.enable_guest_swap", false, boolean,
		"Let the guest swap to a file of the host.").
		annotated("config.hypervisor.enable_guest_swap"),
	later("hypervisor.qemu.enable_numa", false, boolean,
		"Show the host's NUMA nodes to the guest."),
	later("hypervisor.qemu.numa_mapping", []any{}, words,
		"Which host nodes back each guest node.").
		annotated("config.hypervisor.numa_mapping"),
	never("hypervisor.qemu.virtio_fs_cache_size", int64(0), count,
		"QEMU has no DAX window for virtio-fs").
		annotated("config.hypervisor.virtio_fs_cache_size"),
	never("hypervisor.qemu.msize_9p", int64(8192), count,
		"there is no 9p: the guest sees the host's directories by virtio-fs").
		annotated("config.hypervisor.msize_9p"),
}

// diskKeys are about disks.
var diskKeys = []key{
	later("hypervisor.qemu.enable_vhost_user_store", false, boolean,
		"Take disks from vhost-user back ends such as SPDK.").
		annotated("config.hypervisor.enable_vhost_user_store"),
	later("hypervisor.qemu.vhost_user_store_path", "/var/run/kata-containers/vhost-user", absolutePath,
		"The directory of their sockets and device nodes.").
		annotated("config.hypervisor.vhost_user_store_path"),
	later("hypervisor.qemu.valid_vhost_user_store_paths", []any{"/var/run/kata-containers/vhost-user"}, words,
		"Patterns for what the annotation vhost_user_store_path may name."),
	later("hypervisor.qemu.vhost_user_reconnect_timeout_sec", int64(0), count,
		"After how many seconds QEMU connects to a lost back end again; 0 means never.").
		annotated("config.hypervisor.vhost_user_reconnect_timeout_sec"),
}

// hostDeviceKeys are about buses and the host's own devices.
var hostDeviceKeys = []key{
	later("hypervisor.qemu.default_bridges", int64(1), count,
		"How many PCI bridges for hot-plug a guest has."),
	later("hypervisor.qemu.hot_plug_vfio", "no-port", portKind,
		"Where VFIO devices are plugged into a running guest.").
		annotated("config.hypervisor.hot_plug_vfio"),
	later("hypervisor.qemu.cold_plug_vfio", "no-port", portKind,
		"Where VFIO devices are plugged before the guest starts.").
		annotated("config.hypervisor.cold_plug_vfio"),
	later("hypervisor.qemu.pcie_root_port", int64(0), count,
		"How many PCIe root ports are made beforehand.").
		annotated("config.hypervisor.pcie_root_port"),
	later("hypervisor.qemu.pcie_switch_port", int64(0), count,
		"How many PCIe switch ports are made beforehand.").
		annotated("config.hypervisor.pcie_switch_port"),
	never("hypervisor.qemu.hotplug_vfio_on_root_bus", false, boolean,
		"its place is taken by hot_plug_vfio").
		annotated("config.hypervisor.hotplug_vfio_on_root_bus"),
	later("hypervisor.qemu.enable_iommu", false, boolean,
		"Give the guest an IOMMU.").
		annotated("config.hypervisor.enable_iommu"),
	later("hypervisor.qemu.enable_iommu_platform", false, boolean,
		"Send the virtio devices' memory accesses through that IOMMU.").
		annotated("config.hypervisor.enable_iommu_platform"),
}
