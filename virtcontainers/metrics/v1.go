package metrics

import (
	"fmt"
	"math"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
)

// Operations names block I/O operations in v1 metrics.
type Operations struct{ Read, Write string }

// The two spellings in use: the kernel's, and the only one that iSulad knows.
var (
	KernelOperations = Operations{"Read", "Write"}
	ISuladOperations = Operations{"read", "write"}
)

// microsecond is v1's unit of CPU time in terms of v2's: nanoseconds.
const microsecond = 1000

// ToV1 translates v2 metrics. Counters that v2 lacks are zero.
func ToV1(m *v2.Metrics, ops Operations) *v1.Metrics {
	out := &v1.Metrics{CPU: cpu(m.GetCPU()), Memory: memory(m.GetMemory()), Blkio: blkio(m.GetIo(), ops)}
	if p := m.GetPids(); p != nil {
		out.Pids = pids(p)
	}
	if e := m.GetMemoryEvents(); e != nil {
		out.MemoryOomControl = &v1.MemoryOomControl{OomKill: e.OomKill}
		if out.Memory != nil { // how often the limit was hit
			out.Memory.Usage.Failcnt = e.Max
		}
	}
	for _, h := range m.GetHugetlb() {
		// v2's Max is the limit, v1's the most that was used.
		out.Hugetlb = append(out.Hugetlb, &v1.HugetlbStat{Usage: h.Current, Failcnt: h.Failcnt, Pagesize: h.Pagesize})
	}
	for _, n := range m.GetNetwork() {
		out.Network = append(out.Network, network(n))
	}
	return out
}

// pids has 0 for no limit, as v1's readers expect (cgroup1/utils.go, readUint).
func pids(p *v2.PidsStat) *v1.PidsStat {
	out := &v1.PidsStat{Current: p.Current, Limit: p.Limit}
	if p.Limit == math.MaxUint64 {
		out.Limit = 0
	}
	return out
}

func cpu(c *v2.CPUStat) *v1.CPUStat {
	if c == nil {
		return nil
	}
	return &v1.CPUStat{
		Usage: &v1.CPUUsage{Total: c.UsageUsec * microsecond, User: c.UserUsec * microsecond, Kernel: c.SystemUsec * microsecond},
		Throttling: &v1.Throttle{
			Periods: c.NrPeriods, ThrottledPeriods: c.NrThrottled, ThrottledTime: c.ThrottledUsec * microsecond,
		},
	}
}

// memory fills both the container's own counters and the hierarchical ones
// ("total_..."): v2's are always hierarchical.
func memory(m *v2.MemoryStat) *v1.MemoryStat {
	if m == nil {
		return nil
	}
	return &v1.MemoryStat{
		Cache: m.File, TotalCache: m.File,
		RSS: m.Anon, TotalRSS: m.Anon,
		RSSHuge: m.AnonThp, TotalRSSHuge: m.AnonThp,
		MappedFile: m.FileMapped, TotalMappedFile: m.FileMapped,
		Dirty: m.FileDirty, TotalDirty: m.FileDirty,
		Writeback: m.FileWriteback, TotalWriteback: m.FileWriteback,
		PgFault: m.Pgfault, TotalPgFault: m.Pgfault,
		PgMajFault: m.Pgmajfault, TotalPgMajFault: m.Pgmajfault,
		InactiveAnon: m.InactiveAnon, TotalInactiveAnon: m.InactiveAnon,
		ActiveAnon: m.ActiveAnon, TotalActiveAnon: m.ActiveAnon,
		InactiveFile: m.InactiveFile, TotalInactiveFile: m.InactiveFile,
		ActiveFile: m.ActiveFile, TotalActiveFile: m.ActiveFile,
		Unevictable: m.Unevictable, TotalUnevictable: m.Unevictable,
		HierarchicalMemoryLimit: m.UsageLimit,
		// v1's swap entry is memory and swap together.
		HierarchicalSwapLimit: add(m.UsageLimit, m.SwapLimit),
		Usage:                 &v1.MemoryEntry{Limit: m.UsageLimit, Usage: m.Usage, Max: m.MaxUsage},
		Swap:                  &v1.MemoryEntry{Limit: add(m.UsageLimit, m.SwapLimit), Usage: m.Usage + m.SwapUsage},
		Kernel:                &v1.MemoryEntry{Usage: m.KernelStack + m.Slab},
		KernelTCP:             &v1.MemoryEntry{Usage: m.Sock},
	}
}

// add saturates: "no limit" is the largest number.
func add(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^uint64(0)
}

func blkio(io *v2.IOStat, ops Operations) *v1.BlkIOStat {
	out := new(v1.BlkIOStat)
	for _, u := range io.GetUsage() {
		entry := func(op string, value uint64) *v1.BlkIOEntry {
			return &v1.BlkIOEntry{Op: op, Device: fmt.Sprintf("%d:%d", u.Major, u.Minor), Major: u.Major, Minor: u.Minor, Value: value}
		}
		out.IoServiceBytesRecursive = append(out.IoServiceBytesRecursive, entry(ops.Read, u.Rbytes), entry(ops.Write, u.Wbytes))
		out.IoServicedRecursive = append(out.IoServicedRecursive, entry(ops.Read, u.Rios), entry(ops.Write, u.Wios))
	}
	return out
}

func network(n *v2.NetworkStat) *v1.NetworkStat {
	return &v1.NetworkStat{
		Name:    n.Name,
		RxBytes: n.RxBytes, RxPackets: n.RxPackets, RxErrors: n.RxErrors, RxDropped: n.RxDropped,
		TxBytes: n.TxBytes, TxPackets: n.TxPackets, TxErrors: n.TxErrors, TxDropped: n.TxDropped,
	}
}
