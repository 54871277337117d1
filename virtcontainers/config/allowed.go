package config

import (
	"errors"
	"path/filepath"
	"slices"
)

// enableKey is the key that enables annotations.
const enableKey = "hypervisor.qemu.enable_annotations"

// Allowed is what pods may set by annotation.
type Allowed struct {
	// Enabled is regular expressions, each valid; one of them must match all of
	// an annotation's name after "io.katacontainers.config.hypervisor.".
	Enabled []string
	// HypervisorPaths and VirtioFSDaemonPaths are patterns (filepath.Match),
	// each valid, for the programs that a pod may choose.
	HypervisorPaths, VirtioFSDaemonPaths []string
	// KernelPaths, InitrdPaths and FirmwarePaths are patterns for what a pod's
	// guest may boot from.
	KernelPaths, InitrdPaths, FirmwarePaths []string
	// EntropySources and MemBackends are patterns too: for files of random
	// numbers, and for directories for the guest's memory.
	EntropySources, MemBackends []string
}

// annotationKeys are the keys that say what annotations may do. They are
// effective.
var annotationKeys = []key{
	define(enableKey, []any{"enable_iommu", "kernel_params", "kernel_verity_params"}, expressions,
		func(d *draft) *[]string { return &d.Annotations.Enabled },
		"Which annotations io.katacontainers.config.hypervisor.* pods may have: regular expressions, of which one must "+
			`match all of what follows "hypervisor." (kernel does not enable kernel_params). With ".*" a pod chooses the `+
			"programs that its sandbox runs, as far as the lists below allow; but none can turn rootless off."),
	define(hypervisorPathsKey, []any{defaultHypervisor}, patterns,
		func(d *draft) *[]string { return &d.Annotations.HypervisorPaths },
		"Which paths the annotation path may name, as glob patterns."),
	define(virtioFSDaemonPathsKey, []any{"/usr/lib/qemu/virtiofsd"}, patterns,
		func(d *draft) *[]string { return &d.Annotations.VirtioFSDaemonPaths },
		"Which paths the annotation virtio_fs_daemon may name, as glob patterns."),
	define(kernelPathsKey, plain(guestFiles), patterns,
		func(d *draft) *[]string { return &d.Annotations.KernelPaths },
		"Which paths the annotation kernel may name, as glob patterns."),
	define(initrdPathsKey, plain(guestFiles), patterns,
		func(d *draft) *[]string { return &d.Annotations.InitrdPaths },
		"Which paths the annotation initrd may name, as glob patterns."),
	define(firmwarePathsKey, plain(firmwareFiles), patterns,
		func(d *draft) *[]string { return &d.Annotations.FirmwarePaths },
		"Which paths the annotation firmware may name, as glob patterns."),
}

const (
	hypervisorPathsKey     = "hypervisor.qemu.valid_hypervisor_paths"
	virtioFSDaemonPathsKey = "hypervisor.qemu.valid_virtio_fs_daemon_paths"
	kernelPathsKey         = "hypervisor.qemu.valid_kernel_paths"
	initrdPathsKey         = "hypervisor.qemu.valid_initrd_paths"
	firmwarePathsKey       = "hypervisor.qemu.valid_firmware_paths"
)

// guestFiles are the directories in which kata-deploy and packages of Kata
// Containers put kernels, images and firmware; firmwareFiles adds those in
// which Debian and Fedora put firmware.
var (
	guestFiles    = []string{"/usr/share/kata-containers/*", "/opt/kata/share/kata-containers/*"}
	firmwareFiles = append(slices.Clone(guestFiles), "/usr/share/ovmf/*", "/usr/share/OVMF/*", "/usr/share/edk2/ovmf/*")
)

func hypervisorPaths(c *Config) []string     { return c.Annotations.HypervisorPaths }
func virtioFSDaemonPaths(c *Config) []string { return c.Annotations.VirtioFSDaemonPaths }

func kernelPaths(c *Config) []string   { return c.Annotations.KernelPaths }
func initrdPaths(c *Config) []string   { return c.Annotations.InitrdPaths }
func firmwarePaths(c *Config) []string { return c.Annotations.FirmwarePaths }

// matchesAny reports whether a pattern matches the path. A path that is not
// clean matches none: "/opt/*/*" would match "/opt/../x".
func matchesAny(patterns []string, path string) bool {
	return path == filepath.Clean(path) && slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := filepath.Match(pattern, path)
		return err == nil && matched
	})
}

// checkRootless lets a pod jail its QEMU, not run it as root: the jail protects the
// host from the pod.
func checkRootless(v any) error {
	if jailed, _ := v.(bool); !jailed {
		return errors.New("want true: only the configuration file can run QEMU as root")
	}
	return nil
}
