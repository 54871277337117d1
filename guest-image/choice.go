package main

// bootModules are loaded at start: what every pod needs.
var bootModules = []string{
	"virtio_pci",                 // every device of a pod is a virtio device on PCI
	"vmw_vsock_virtio_transport", // the way to the host
	"virtiofs",                   // root file systems from the host's share
	"overlay",                    // the agent seals its own binary with one
}

// demandModules are loaded when a pod asks for them by name.
var demandModules = []string{
	"virtio_net",     // a pod's network interface
	"virtio_blk",     // block devices as volumes and root file systems
	"virtio_mem",     // memory added to a running pod
	"virtio_balloon", // memory taken back from one
	"erofs",          // root file systems from an image (ext4 is built in)
	"loop",           // file systems in files
}
