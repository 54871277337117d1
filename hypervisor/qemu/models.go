package qemu

// The models of devices that machines have, by their names in "-device help". A
// distribution's QEMU may have fewer than QEMU's source.
const (
	ModelConsole       = "isa-serial"
	ModelBridge        = "pci-bridge"
	ModelNIC           = "virtio-net-pci"
	ModelRNG           = "virtio-rng-pci"
	ModelBalloon       = "virtio-balloon-pci"
	ModelMemory        = "virtio-mem-pci"
	ModelMemoryModule  = "pc-dimm"
	ModelVsock         = "vhost-vsock-pci"
	ModelVhostUserSock = "vhost-user-vsock-pci"
	ModelShare         = "vhost-user-fs-pci"
	ModelBlock         = "virtio-blk-pci"
	ModelSCSI          = "virtio-scsi-pci"
	ModelSCSIDisk      = "scsi-hd"
	// ModelPanic reports a guest kernel's panic (QEMU's docs/specs/pvpanic.rst).
	ModelPanic = "pvpanic-pci"
)
