package oci

import (
	"fmt"
	"slices"
	"strings"

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

// explainNoSandbox adds to the error of a start what may be the cause if there is no
// container of the pod's sandbox. CRI-O makes one for this runtime only by these rules
// (podIsKernelSeparated in server/sandbox_run_linux.go).
func (r *Runtime) explainNoSandbox(rec *record, err error) error {
	ids, listErr := r.ids()
	isSandbox := func(id string) bool { return strings.HasPrefix(id, rec.SandboxID) } // as the shim finds it
	if listErr != nil || slices.ContainsFunc(ids, isSandbox) {
		return err
	}
	return fmt.Errorf(`%w (if CRI-O made no infra container: let the handler's name contain "kata", or set drop_infra_ctr = false)`, err)
}
