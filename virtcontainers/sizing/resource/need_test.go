package resource

import (
	"math"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

func cpu(quota int64, period uint64, cpus string) *specs.LinuxResources {
	return &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: &period, Cpus: cpus}}
}

func memory(limit int64) *specs.LinuxResources {
	return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}
}

func huge(limits ...uint64) *specs.LinuxResources {
	r := memory(1)
	for _, l := range limits {
		r.HugepageLimits = append(r.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: "2MB", Limit: l})
	}
	return r
}

func TestOfContainer(t *testing.T) {
	tests := []struct {
		name   string
		r      *specs.LinuxResources
		cpu    uint64
		pinned int
		memory uint64
	}{
		{"nil", nil, 0, 0, 0},
		{"nothing", &specs.LinuxResources{CPU: &specs.LinuxCPU{}, Memory: &specs.LinuxMemory{}}, 0, 0, 0},
		{"quota", cpu(150_000, 100_000, ""), 1_500_000, 0, 0},
		{"quota without period", &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](50_000)}}, 500_000, 0, 0},
		{"period without quota", &specs.LinuxResources{CPU: &specs.LinuxCPU{Period: ptr[uint64](50_000)}}, 0, 0, 0},
		{"period of zero", cpu(50_000, 0, ""), 500_000, 0, 0},
		{"no quota", cpu(-1, 100_000, ""), 0, 0, 0},
		{"quota of zero", cpu(0, 100_000, ""), 0, 0, 0},
		{"least quota", cpu(math.MinInt64, 100_000, ""), 0, 0, 0},
		{"largest quota", cpu(math.MaxInt64, 1, ""), math.MaxUint64, 0, 0},
		{"largest quota and period", cpu(math.MaxInt64, math.MaxUint64, ""), 499_999, 0, 0},
		{"a third is rounded down", cpu(1, 3, ""), 333_333, 0, 0},
		{"cpuset", cpu(-1, 0, "0-2,7"), 0, 4, 0},
		{"cpuset, twice the same", cpu(-1, 0, "1,0-2,2-3\n"), 0, 4, 0},
		{"last CPU", cpu(-1, 0, "8191"), 0, 1, 0},
		{"cpuset and quota", cpu(100_000, 100_000, "0-2"), 1_000_000, 0, 0},
		{"shares are no limit", &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr[uint64](4096)}}, 0, 0, 0},
		{"memory", memory(5 << 20), 0, 0, 5 << 20},
		{"no memory limit", memory(-1), 0, 0, 0},
		{"memory limit of zero", memory(0), 0, 0, 0},
		{"unlimited memory", memory(math.MaxInt64), 0, 0, 0},
		{"unlimited memory in whole pages", memory(math.MaxInt64 - 4095), 0, 0, 0},
		{"more memory than there is", memory(math.MaxInt64 - 4096), 0, 0, math.MaxInt64 - 4096},
		{"huge pages", huge(2<<20, 1<<30), 0, 0, 1 + 2<<20 + 1<<30},
		{"unlimited huge pages", huge(math.MaxUint64, math.MaxInt64), 0, 0, 1},
		{"swap does not count", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](4096), Swap: ptr[int64](8192)}}, 0, 0, 4096},
	}
	for _, test := range tests {
		n, err := OfContainer(test.r)
		if err != nil || n.cpu != test.cpu || n.pinned.Count() != test.pinned || n.memory != test.memory {
			t.Errorf("%s: %d parts of a CPU, %d pinned, %d bytes, %v", test.name, n.cpu, n.pinned.Count(), n.memory, err)
		}
	}
}

func TestBadCPUSets(t *testing.T) {
	for _, list := range []string{" ", ",", "0,", "a", "-1", "1-", "3-2", "0-8192", "8192", "65536", "0x1", "1 2", "0-2:1/2", "+1"} {
		if n, err := OfContainer(cpu(-1, 0, list)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("cpuset %q: %v, %v", list, n, err)
		}
	}
}

// The kubelet's static CPU manager gives containers the CPUs that no other has for itself.
func TestOfKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		cpu    specs.LinuxCPU
		cpus   uint64
		pinned int
	}{
		"the shared CPUs":                 {specs.LinuxCPU{Cpus: "0-63", Shares: ptr[uint64](2)}, 0, 0},
		"the shared CPUs and a request":   {specs.LinuxCPU{Cpus: "0-63", Shares: ptr[uint64](1536), Quota: ptr[int64](-1)}, 0, 0},
		"the shared CPUs and a limit":     {specs.LinuxCPU{Cpus: "0-63", Shares: ptr[uint64](512), Quota: ptr[int64](50_000)}, 500_000, 0},
		"its own CPUs":                    {specs.LinuxCPU{Cpus: "4-7", Shares: ptr[uint64](4096), Quota: ptr[int64](400_000)}, 4_000_000, 0},
		"its own CPUs, without a quota":   {specs.LinuxCPU{Cpus: "4-7", Shares: ptr[uint64](4096), Quota: ptr[int64](-1)}, 0, 4},
		"more CPUs than there are shares": {specs.LinuxCPU{Cpus: "0-299", Shares: ptr[uint64](MaxShares)}, 0, 300},
		"not the kubelet's":               {specs.LinuxCPU{Cpus: "0-3"}, 0, 4},
		"no set":                          {specs.LinuxCPU{Shares: ptr[uint64](1024)}, 0, 0},
	} {
		n, err := OfKubelet(&specs.LinuxResources{CPU: &test.cpu})
		if err != nil || n.cpu != test.cpus || n.pinned.Count() != test.pinned {
			t.Errorf("%s: %d parts of a CPU, %d pinned, %v, want %d and %d", name, n.cpu, n.pinned.Count(), err, test.cpus, test.pinned)
		}
	}
	if n, err := OfKubelet(nil); err != nil || n.cpu != 0 || n.pinned.Count() != 0 {
		t.Errorf("no limits: %+v, %v", n, err)
	}
	if n, err := OfKubelet(cpu(-1, 0, "0-")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a set that cannot be parsed: %+v, %v", n, err)
	}
}
