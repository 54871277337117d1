package resource

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestOfAnnotations(t *testing.T) {
	tests := []struct {
		name                          string
		quota, period, shares, memory string
		cpu, bytes                    uint64
	}{
		{name: "none"},
		{name: "limits", quota: "250000", period: "100000", shares: "102", memory: "1073741824", cpu: 2_500_000, bytes: 1 << 30},
		{name: "no period", quota: "100000", cpu: 1_000_000},
		{name: "negative period", quota: "100000", period: "-1", cpu: 1_000_000},
		{name: "requests only", quota: "-1", period: "100000", shares: "512", memory: "0", cpu: 500_000},
		{name: "requests only, quota of zero", quota: "0", period: "100000", shares: "2048", cpu: 2_000_000},
		{name: "best effort", quota: "0", period: "100000", shares: "2", memory: "0"},
		{name: "negative shares", shares: "-1"},
		{name: "unlimited memory", memory: "9223372036854775807"},
		{name: "negative memory", memory: "-1"},
	}
	for _, test := range tests {
		annotations := map[string]string{"other": "x"}
		for name, v := range map[string]string{annotationQuota: test.quota, annotationPeriod: test.period,
			annotationShares: test.shares, annotationMemory: test.memory} {
			if v != "" {
				annotations[name] = v
			}
		}
		n, err := OfAnnotations(annotations)
		if err != nil || n.cpu != test.cpu || n.memory != test.bytes {
			t.Errorf("%s: %d parts of a CPU, %d bytes, %v", test.name, n.cpu, n.memory, err)
		}
	}
	for _, v := range []string{"", "1.5", "1e9", "9223372036854775808", "1G"} {
		if n, err := OfAnnotations(map[string]string{annotationMemory: v}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("memory %q: %v, %v", v, n, err)
		}
	}
}

// CRI-O writes the same as JSON.
func TestOfCRIOAnnotations(t *testing.T) {
	const name, later = "io.kubernetes.cri-o.PodLinuxResources", "pod-linux-resources.crio.io"
	for what, test := range map[string]struct {
		annotations map[string]string
		cpu, bytes  uint64
	}{
		"limits": {map[string]string{name: `{"cpu_period":100000,"cpu_quota":250000,"cpu_shares":102,"memory_limit_in_bytes":1073741824,` +
			`"unified":{"memory.oom.group":"1"}}`}, 2_500_000, 1 << 30},
		"requests":           {map[string]string{name: `{"cpu_period":100000,"cpu_shares":2048}`}, 2_000_000, 0},
		"best effort":        {map[string]string{name: `{"cpu_period":100000,"cpu_shares":2}`}, 0, 0},
		"nothing is said":    {map[string]string{name: "null"}, 0, 0},
		"the later name":     {map[string]string{later: `{"memory_limit_in_bytes":4096}`}, 0, 4096},
		"a pod's annotation": {map[string]string{name: `{"memory_limit_in_bytes":4096}`, later: `{"memory_limit_in_bytes":8192}`}, 0, 4096},
		"containerd's name":  {map[string]string{name: "null", annotationMemory: "8192"}, 0, 0},
	} {
		n, err := OfAnnotations(test.annotations)
		if err != nil || n.cpu != test.cpu || n.memory != test.bytes {
			t.Errorf("%s: %d parts of a CPU, %d bytes, %v", what, n.cpu, n.memory, err)
		}
	}
	for _, text := range []string{"", "much", "[]", `{"memory_limit_in_bytes":"1G"}`, `{"cpu_quota":1.5}`} {
		if n, err := OfAnnotations(map[string]string{name: text}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, %v", text, n, err)
		}
	}
}

func TestOfPod(t *testing.T) {
	all := &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: ptr[int64](250_000), Period: ptr[uint64](100_000), Shares: ptr[uint64](102)},
		Memory: &specs.LinuxMemory{Limit: ptr[int64](4096)},
	}
	requests := &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](-1), Shares: ptr[uint64](2048)}}
	for name, test := range map[string]struct {
		resources  *specs.LinuxResources
		cpu, bytes uint64
	}{
		"nothing": {}, "no parts": {resources: &specs.LinuxResources{}}, "limits": {all, 2_500_000, 4096}, "requests": {requests, 2_000_000, 0},
	} {
		if n := OfPod(test.resources); n.cpu != test.cpu || n.memory != test.bytes {
			t.Errorf("%s: %d parts of a CPU, %d bytes", name, n.cpu, n.memory)
		}
	}
}
