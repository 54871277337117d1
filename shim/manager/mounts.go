package manager

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
)

// The mounts that the shim makes instead of the engine when root file systems may
// be disks of the guest (virtcontainers/guestfs/rootfs): erofs layers, and
// templates over earlier mounts. mkfs is not among them: the engine formats.
var (
	ownTypes      = []string{"erofs"}
	ownTransforms = []string{"format", "mkdir"}
)

// allowMounts is the annotation by which containerd 2.2 and 2.3 ask for the
// same, as types and "TRANSFORM/*".
const allowMounts = "containerd.io/runtime-allow-mounts"

// mountCapabilities are the mounts that containerd 2.4 and later leave to the
// shim for this container. They are never nil: an engine that gets none uses
// allowMounts, which does not depend on the container's configuration. An empty
// list is safe: the engine then mounts everything on the host, which works
// through the share. So is a list with a configuration that does not use disks:
// the shim then makes the mounts on the host. An error is therefore ignored here:
// Create will report it.
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

// allowedMounts is the value of allowMounts for the configuration that applies if
// the engine names none; empty for none.
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
