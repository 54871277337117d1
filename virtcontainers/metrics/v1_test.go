package metrics

import (
	"math"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestToV1(t *testing.T) {
	got := ToV1(&v2.Metrics{
		Pids:         &v2.PidsStat{Current: 3, Limit: 100},
		CPU:          &v2.CPUStat{UsageUsec: 30, UserUsec: 20, SystemUsec: 10, NrPeriods: 7, NrThrottled: 2, ThrottledUsec: 5},
		Memory:       &v2.MemoryStat{Usage: 1000, UsageLimit: 4096, MaxUsage: 2000, SwapUsage: 10, SwapLimit: math.MaxUint64, Anon: 600, File: 300, Slab: 5, KernelStack: 6},
		MemoryEvents: &v2.MemoryEvents{OomKill: 1, Max: 9},
		Hugetlb:      []*v2.HugeTlbStat{{Pagesize: "2MB", Current: 3, Max: math.MaxUint64, Failcnt: 4}},
		Io:           &v2.IOStat{Usage: []*v2.IOEntry{{Major: 254, Minor: 1, Rbytes: 10, Wbytes: 20, Rios: 1, Wios: 2}}},
		Network:      []*v2.NetworkStat{{Name: "eth0", RxBytes: 5, TxBytes: 6}},
	}, ISuladOperations)
	entry := func(op string, value uint64) *v1.BlkIOEntry {
		return &v1.BlkIOEntry{Op: op, Device: "254:1", Major: 254, Minor: 1, Value: value}
	}
	want := &v1.Metrics{
		Pids: &v1.PidsStat{Current: 3, Limit: 100},
		CPU: &v1.CPUStat{Usage: &v1.CPUUsage{Total: 30000, User: 20000, Kernel: 10000},
			Throttling: &v1.Throttle{Periods: 7, ThrottledPeriods: 2, ThrottledTime: 5000}},
		Memory: &v1.MemoryStat{Cache: 300, TotalCache: 300, RSS: 600, TotalRSS: 600,
			HierarchicalMemoryLimit: 4096, HierarchicalSwapLimit: math.MaxUint64,
			Usage:  &v1.MemoryEntry{Limit: 4096, Usage: 1000, Max: 2000, Failcnt: 9},
			Swap:   &v1.MemoryEntry{Limit: math.MaxUint64, Usage: 1010},
			Kernel: &v1.MemoryEntry{Usage: 11}, KernelTCP: &v1.MemoryEntry{}},
		MemoryOomControl: &v1.MemoryOomControl{OomKill: 1},
		Hugetlb:          []*v1.HugetlbStat{{Pagesize: "2MB", Usage: 3, Failcnt: 4}}, // its Max is a maximum of usage, not the limit
		Blkio: &v1.BlkIOStat{IoServiceBytesRecursive: []*v1.BlkIOEntry{entry("read", 10), entry("write", 20)},
			IoServicedRecursive: []*v1.BlkIOEntry{entry("read", 1), entry("write", 2)}},
		Network: []*v1.NetworkStat{{Name: "eth0", RxBytes: 5, TxBytes: 6}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Metrics without any counters are translated too.
func TestToV1Empty(t *testing.T) {
	if got := ToV1(&v2.Metrics{}, KernelOperations); got.Blkio == nil {
		t.Errorf("got %v", got)
	}
}

// Without a limit of processes v1's counters have 0 (cgroup1/utils.go, readUint).
func TestToV1WithoutPidsLimit(t *testing.T) {
	got := ToV1(&v2.Metrics{Pids: &v2.PidsStat{Current: 3, Limit: math.MaxUint64}}, KernelOperations).Pids
	if got.Current != 3 || got.Limit != 0 {
		t.Errorf("%v, want 3 without a limit", got)
	}
}
