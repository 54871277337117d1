package config

import (
	"slices"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// bare is an annotation that sets no key.
type bare struct {
	// name is the full name.
	name string
	// refused ones fail the pod that has them; the others are ignored, with a
	// warning unless quiet.
	refused, quiet bool
	// taken ones are handled by another package.
	taken bool
	// container ones apply on every container, not only on the sandbox's.
	container bool
	// why is a phrase that can follow a colon.
	why string
}

// bareAnnotations is every annotation that sets no key: Kata's, openEuler's and
// our own.
var bareAnnotations = slices.Concat(hashAnnotations, oddAnnotations, forkAnnotations, containerAnnotations)

const noHashes = "files are not checked by their hash; let the valid_* lists name no file that pods may not choose"

// hashAnnotations request a check that is not implemented. Ignoring them would
// give less protection than the pod requested.
var hashAnnotations = []bare{
	{name: hypervisorPrefix + "kernel_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "image_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "initrd_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "hypervisor_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "jailer_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "firmware_hash", refused: true, why: noHashes},
	{name: hypervisorPrefix + "firmware_volume_hash", refused: true, why: noHashes},
	{name: annotationPrefix + "asset_hash_type", refused: true, why: noHashes},
}

var oddAnnotations = []bare{
	{name: hypervisorPrefix + "cc_init_data", refused: true, why: noConfidential},
	{name: hypervisorPrefix + "default_gpus", refused: true, why: "only a remote hypervisor chooses machines by it"},
	{name: hypervisorPrefix + "default_gpu_model", refused: true, why: "only a remote hypervisor chooses machines by it"},
	{name: hypervisorPrefix + "use_vsock", why: "the agent is always reached by vsock"},
	{name: hypervisorPrefix + "enable_swap", why: "Kata Containers 2 removed it"},
	{name: hypervisorPrefix + "ctlpath", refused: true, why: "only ACRN has it"},
	{name: annotationPrefix + "config.agent.policy", refused: true, why: "the agent has no policy engine"},
	{name: annotationPrefix + "config.agent.container_pipe_size", why: "stdio comes by streams and not by pipes with a size"},
	{name: annotationPrefix + "config_path", refused: true,
		why: "only the engine names the configuration file (containerd's ConfigPath option)"},
	{name: annotationPrefix + "pkg.oci.bundle_path", quiet: true, why: "Kata's runtime notes it for itself"},
	{name: annotationPrefix + "pkg.oci.container_type", quiet: true, why: "Kata's runtime notes it for itself"},
}

var forkAnnotations = []bare{
	{name: forkPrefix + "static_devices", refused: true,
		why: "devices of the host are not given to guests by annotation"},
	{name: forkPrefix + "sandbox_drivers", refused: true,
		why: "modules are loaded in the guest by " + annotationPrefix + "config.agent.kernel_modules"},
	{name: forkPrefix + "boot_cgroup", refused: true,
		why: "the pod's cgroup is the engine's choice (cgroupsPath)"},
	{name: forkPrefix + "storage_spec", refused: true, container: true,
		why: "volumes are the mounts of the container's spec"},
	{name: forkPrefix + "blkio_cgroup", refused: true, container: true,
		why: "block I/O is not limited on the host"},
}

var containerAnnotations = []bare{
	{name: bundle.PublishAnnotation, taken: true, container: true,
		why: "the host reaches a container's UNIX sockets by it (volumes.md, Sockets of a container)"},
	{name: annotationPrefix + "container.resource.swappiness", container: true, why: "guests have no swap yet"},
	{name: annotationPrefix + "container.resource.swap_in_bytes", container: true, why: "guests have no swap yet"},
}

// oldNames maps the names up to Kata Containers 1.8, without their prefix, to
// the current ones.
var oldNames = map[string]string{
	"KernelPath":             hypervisorPrefix + "kernel",
	"ImagePath":              hypervisorPrefix + "image",
	"InitrdPath":             hypervisorPrefix + "initrd",
	"HypervisorPath":         hypervisorPrefix + "path",
	"JailerPath":             hypervisorPrefix + "jailer_path",
	"FirmwarePath":           hypervisorPrefix + "firmware",
	"KernelHash":             hypervisorPrefix + "kernel_hash",
	"ImageHash":              hypervisorPrefix + "image_hash",
	"InitrdHash":             hypervisorPrefix + "initrd_hash",
	"HypervisorHash":         hypervisorPrefix + "hypervisor_hash",
	"JailerHash":             hypervisorPrefix + "jailer_hash",
	"FirmwareHash":           hypervisorPrefix + "firmware_hash",
	"AssetHashType":          annotationPrefix + "asset_hash_type",
	"KernelModules":          annotationPrefix + "config.agent.kernel_modules",
	"pkg.oci.bundle_path":    annotationPrefix + "pkg.oci.bundle_path",
	"pkg.oci.container_type": annotationPrefix + "pkg.oci.container_type",
}
