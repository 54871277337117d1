package oci

import (
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// CRI-O's annotations, which Podman uses too, for a container's place in a pod.
const (
	containerType = "io.kubernetes.cri-o.ContainerType"
	sandboxID     = "io.kubernetes.cri-o.SandboxID"
)

// completePlace says of a container that names a sandbox, and not what it is
// there, that it is one of the sandbox's containers: Podman 5.4 leaves the type
// out, which 4.3 gave. In a pod without an infra container Podman names the pod,
// of whose id there is no container: each of its containers has a machine to
// itself.
func (r *Runtime) completePlace(id string, spec *specs.Spec) error {
	sandbox := spec.Annotations[sandboxID]
	if _, typed := spec.Annotations[containerType]; typed || sandbox == "" || sandbox == id {
		return nil
	}
	_, err := r.load(sandbox)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	spec.Annotations[containerType] = "container"
	return nil
}
