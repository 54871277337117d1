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

// completePlace adds the type "container" to a container that names a sandbox and
// no type: Podman 5.4 leaves the type out, unlike 4.3. In a pod without an infra
// container Podman names the pod, whose id is not a container's: each of its
// containers has its own machine.
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
