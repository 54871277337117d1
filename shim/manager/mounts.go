package manager

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
)

// What the shim does itself of an engine's mounts when root file systems may be
// disks of the guest (virtcontainers/guestfs/rootfs): erofs layers, and templates over
// the mounts before. Not mkfs: the engine formats.
var (
	ownTypes      = []string{"erofs"}
	ownTransforms = []string{"format", "mkdir"}
)

// allowMounts is the annotation by which containerd 2.2 and 2.3 ask for the
// same, as types and "TRANSFORM/*".
const allowMounts = "containerd.io/runtime-allow-mounts"

// mountCapabilities are what containerd 2.4 and later shall not do for the
// container. They are never nil: an engine that is told none looks for
// allowMounts, which knows nothing of the container's configuration. Without
// them the engine mounts all on the host, which works through the share; with
// them, and yet a configuration that uses no disks, the shim does. So an error
// is no reason to fail: Create will meet it.
func mountCapabilities(p *Params) *types.MountCapabilities {
	cfg, err := config.Load(p.configPath)
	if err == nil {
		cfg, err = cfg.Annotate(podAnnotations(p))
	}
	if err != nil || !cfg.Hypervisor.RootfsAsDisks() {
		return new(types.MountCapabilities)
	}
	return &types.MountCapabilities{Types: ownTypes, Transforms: ownTransforms}
}

// podAnnotations are those of the pod's first container, which change the
// configuration.
func podAnnotations(p *Params) map[string]string {
	b, err := bundle.Load(p.Bundle)
	if err != nil {
		return nil
	}
	place, err := bundle.Place(p.ID, b.Spec.Annotations)
	if err != nil || place.Kind != bundle.Service {
		return b.Spec.Annotations
	}
	dir, err := sandboxBundle(p, place.SandboxID)
	if err != nil {
		return nil
	}
	if b, err = bundle.Load(dir); err != nil {
		return nil
	}
	return b.Spec.Annotations
}

// allowedMounts is the value of allowMounts, by the configuration that an
// engine names nothing for; empty for none.
func allowedMounts() string {
	cfg, err := config.Load("")
	if err != nil || !cfg.Hypervisor.RootfsAsDisks() {
		return ""
	}
	all := slices.Clone(ownTypes)
	for _, t := range ownTransforms {
		all = append(all, t+"/*")
	}
	return strings.Join(all, ",")
}
