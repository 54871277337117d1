package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The limit of a pod counts once, however many of its containers have it.
func TestOnce(t *testing.T) {
	const gib = 1 << 30
	both := func(cpus, memory int64) *specs.LinuxResources {
		period := uint64(100_000)
		quota := cpus * 100_000
		return &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}, Memory: &specs.LinuxMemory{Limit: &memory}}
	}
	machine := Machine{VCPUs: 1, MaxVCPUs: 16, MemoryMiB: 1024, MaxMemoryMiB: 1 << 20}
	pod := map[string]string{annotationQuota: "200000", annotationPeriod: "100000", annotationMemory: "4294967296"}
	// What a pod requests is no limit: one of its containers has none.
	requests := map[string]string{annotationQuota: "0", annotationPeriod: "100000", annotationShares: "2048", annotationMemory: "0"}
	tests := []struct {
		name        string
		annotations map[string]string
		limits      []*specs.LinuxResources
		want        Size
	}{
		{"the pod's limits", pod, []*specs.LinuxResources{both(2, 4*gib), nil, both(2, 4*gib), both(2, 4*gib)}, Size{VCPUs: 3, MemoryMiB: 5120}},
		{"and a container's own", pod, []*specs.LinuxResources{both(1, gib), both(2, 4*gib), both(2, 4*gib)}, Size{VCPUs: 4, MemoryMiB: 6144}},
		{"a sum", pod, []*specs.LinuxResources{both(1, 2*gib), both(1, 2*gib)}, Size{VCPUs: 3, MemoryMiB: 5120}},
		{"one container", pod, []*specs.LinuxResources{both(2, 4*gib)}, Size{VCPUs: 3, MemoryMiB: 5120}},
		{"requests", requests, []*specs.LinuxResources{both(2, 4*gib), both(2, 4*gib), nil}, Size{VCPUs: 5, MemoryMiB: 9216}},
		{"no annotations", nil, []*specs.LinuxResources{both(2, 4*gib), both(2, 4*gib)}, Size{VCPUs: 5, MemoryMiB: 9216}},
		{"no limits at all", nil, []*specs.LinuxResources{nil, nil}, Size{VCPUs: 1, MemoryMiB: 1024}},
	}
	for _, test := range tests {
		pod, err := OfAnnotations(test.annotations)
		if err != nil {
			t.Fatal(err)
		}
		var under []Need
		for _, n := range needs(t, test.limits...) {
			under = append(under, n.Under(pod))
		}
		if diff := cmp.Diff(test.want, machine.Size(Once(under)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// The pod's own limits follow its containers', each resource by itself; a sum is no longer
// known once a part of it has changed.
func TestOutdated(t *testing.T) {
	pod := Need{cpu: 2 * perCPU, memory: 200}
	own := Need{cpu: 2 * perCPU, memory: 200, podsCPU: true, podsMemory: true}
	for name, test := range map[string]struct{ before, after, want Need }{
		"the pod's memory":  {own, Need{cpu: 2 * perCPU, memory: 300}, Need{cpu: 2 * perCPU, memory: 300}},
		"the pod's CPUs":    {own, Need{cpu: perCPU, memory: 200}, Need{cpu: perCPU, memory: 200}},
		"nothing":           {own, own, pod},
		"no limit any more": {own, Need{}, Need{}},
		"a part of a sum":   {Need{cpu: perCPU, memory: 100}, Need{cpu: 2 * perCPU, memory: 100}, Need{memory: 200}},
	} {
		if got := pod.Outdated(test.before, test.after); got.cpu != test.want.cpu || got.memory != test.want.memory {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
