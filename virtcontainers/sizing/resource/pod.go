package resource

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// podResources is CRI's LinuxContainerResources of a whole pod, with the names of its JSON: the
// sums over its containers, or the pod's own (Kubernetes' pod-level resources), as the
// kubelet knows them before the pod starts. Zero is not said.
type podResources struct {
	// Period and Quota are in microseconds.
	Period int64 `json:"cpu_period"`
	Quota  int64 `json:"cpu_quota"`
	Shares int64 `json:"cpu_shares"`
	// Memory is in bytes.
	Memory int64 `json:"memory_limit_in_bytes"`
}

// need returns the need of the pod. One without a CPU limit (Quota) needs what its
// containers request (Shares).
func (r podResources) need() Need {
	n := Need{cpu: quota(r.Quota, uint64(max(r.Period, 0))), memory: memoryLimit(r.Memory)}
	if r.Quota <= 0 && r.Shares > minShares {
		n.cpu, n.requested = scale(uint64(r.Shares), perCPU, sharesPerCPU), true
	}
	return n
}

// OfPod returns the need of a pod whose containers together have those resources in
// CRI; nil is nothing.
func OfPod(r *specs.LinuxResources) Need {
	var pod podResources
	if r == nil {
		return pod.need()
	}
	if c := r.CPU; c != nil {
		pod.Period, pod.Quota, pod.Shares = int64(valueOf(c.Period)), valueOf(c.Quota), int64(valueOf(c.Shares))
	}
	if r.Memory != nil {
		pod.Memory = valueOf(r.Memory.Limit)
	}
	return pod.need()
}

func valueOf[T int64 | uint64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}

// The annotations in which containerd's CRI plugin passes a pod's resources.
const (
	annotationPeriod = "io.kubernetes.cri.sandbox-cpu-period"
	annotationQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	annotationShares = "io.kubernetes.cri.sandbox-cpu-shares"
	annotationMemory = "io.kubernetes.cri.sandbox-memory"
)

// crioAnnotations are those in which CRI-O passes them, as JSON: the earlier name, and
// the one that is to replace it (pkg/annotations/v2). CRI-O removes names that it knows from
// a pod's annotations, and its earlier versions do not know the later one. So that a pod
// cannot state another size there, the earlier name comes first.
var crioAnnotations = []string{"io.kubernetes.cri-o.PodLinuxResources", "pod-linux-resources.crio.io"}

// OfAnnotations returns the need of a pod whose sandbox has those annotations,
// containerd's or CRI-O's. The error names the annotation and is of kind
// errdefs.ErrInvalidArgument.
func OfAnnotations(annotations map[string]string) (Need, error) {
	for _, name := range crioAnnotations {
		if text, ok := annotations[name]; ok {
			return ofJSON(name, text)
		}
	}
	var r podResources
	for _, of := range []struct {
		name  string
		value *int64
	}{
		{annotationPeriod, &r.Period}, {annotationQuota, &r.Quota}, {annotationShares, &r.Shares}, {annotationMemory, &r.Memory},
	} {
		text, ok := annotations[of.name]
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Need{}, fmt.Errorf("annotation %s = %q: want an integer: %w", of.name, text, errdefs.ErrInvalidArgument)
		}
		*of.value = v
	}
	return r.need(), nil
}

// HasPod reports whether a sandbox's annotations say what its pod may use, even if that is
// nothing: the pod is one of CRI then.
func HasPod(annotations map[string]string) bool {
	for _, name := range append([]string{annotationPeriod, annotationQuota, annotationShares, annotationMemory}, crioAnnotations...) {
		if _, ok := annotations[name]; ok {
			return true
		}
	}
	return false
}

// ofJSON reads an annotation of CRI-O; null, which it writes if the kubelet says
// nothing, is no need.
func ofJSON(name, text string) (Need, error) {
	var r podResources
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Need{}, fmt.Errorf("annotation %s = %.200q: want the JSON of CRI's LinuxContainerResources: %w: %w", name, text, err, errdefs.ErrInvalidArgument)
	}
	return r.need(), nil
}
