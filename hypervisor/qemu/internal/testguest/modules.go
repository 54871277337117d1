package main

// drivers are what the tests' devices need, of the modules in the image; what
// it does not have is left out.
var drivers = []string{
	"virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
	"failover", "net_failover", "virtio_net",
	"virtio_blk",
	"scsi_common", "scsi_mod", "virtio_scsi", "sd_mod",
	"virtio_mem", "virtio_balloon", "virtio_rng",
	"pvpanic", "pvpanic_pci",
	"vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
}
