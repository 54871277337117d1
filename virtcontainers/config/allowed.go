package config

import (
	"path/filepath"
	"slices"
)

// enableKey is the key that enables annotations.
const enableKey = "hypervisor.qemu.enable_annotations"

// Allowed is what pods may ask for by annotation.
type Allowed struct {
	// Enabled is regular expressions, each valid; one of them must match a
	// part of an annotation's name after "io.katacontainers.config.hypervisor.".
	Enabled []string
	// HypervisorPaths and VirtioFSDaemonPaths are patterns (filepath.Match),
	// each valid, for the programs that a pod may choose.
	HypervisorPaths, VirtioFSDaemonPaths []string
	// EntropySources and MemBackends are patterns as well: for the files of
	// random numbers and the directories for memory.
	EntropySources, MemBackends []string
}

// annotationKeys are effective: they say what annotations may do.
var annotationKeys = []key{
	define(enableKey, []any{"enable_iommu", "kernel_params", "kernel_verity_params"}, expressions,
		func(d *draft) *[]string { return &d.Annotations.Enabled },
		"Which annotations io.katacontainers.config.hypervisor.* pods may have: regular expressions, of which one must "+
			`match a part of what follows "hypervisor.". With ".*" a pod chooses the programs that its sandbox runs, as `+
			"far as the lists below allow."),
	define(hypervisorPathsKey, []any{defaultHypervisor}, patterns,
		func(d *draft) *[]string { return &d.Annotations.HypervisorPaths },
		"Which paths the annotation path may name, as glob patterns."),
	define(virtioFSDaemonPathsKey, []any{"/usr/lib/qemu/virtiofsd"}, patterns,
		func(d *draft) *[]string { return &d.Annotations.VirtioFSDaemonPaths },
		"Which paths the annotation virtio_fs_daemon may name, as glob patterns."),
}

const (
	hypervisorPathsKey     = "hypervisor.qemu.valid_hypervisor_paths"
	virtioFSDaemonPathsKey = "hypervisor.qemu.valid_virtio_fs_daemon_paths"
)

func hypervisorPaths(c *Config) []string     { return c.Annotations.HypervisorPaths }
func virtioFSDaemonPaths(c *Config) []string { return c.Annotations.VirtioFSDaemonPaths }

// matchesAny reports whether a pattern matches the path. A path that is not as
// short as it can be matches none: "/opt/*/*" would match "/opt/../x".
func matchesAny(patterns []string, path string) bool {
	return path == filepath.Clean(path) && slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := filepath.Match(pattern, path)
		return err == nil && matched
	})
}
