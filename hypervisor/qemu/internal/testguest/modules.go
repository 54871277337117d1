package main

// drivers are the modules that the tests' devices need; those that the image
// lacks are skipped.
var drivers = []string{
	"virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
	"failover", "net_failover", "virtio_net",
	"virtio_blk",
	"scsi_common", "scsi_mod", "virtio_scsi", "sd_mod",
	"virtio_mem", "virtio_balloon", "virtio_rng",
	"pvpanic", "pvpanic_pci",
	"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
}
