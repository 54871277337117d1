package metrics

import (
	"cmp"
	"maps"
	"slices"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
)

// Sum adds up the usage of several containers: what a pod uses. Limits are not
// added.
func Sum(all []*v2.Metrics) *v2.Metrics {
	total := &v2.Metrics{Pids: new(v2.PidsStat), CPU: new(v2.CPUStat), Memory: new(v2.MemoryStat), Io: new(v2.IOStat)}
	disks := make(map[[2]uint64]*v2.IOEntry)
	for _, m := range all {
		total.Pids.Current += m.GetPids().GetCurrent()
		addCPU(total.CPU, m.GetCPU())
		addMemory(total.Memory, m.GetMemory())
		addDisks(disks, m.GetIo())
		if total.Network == nil {
			total.Network = m.GetNetwork() // the pod's, the same for each
		}
	}
	total.Io.Usage = slices.SortedFunc(maps.Values(disks), func(a, b *v2.IOEntry) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return total
}

// addDisks adds what one container has done with each disk, which others may use too.
func addDisks(total map[[2]uint64]*v2.IOEntry, io *v2.IOStat) {
	for _, d := range io.GetUsage() {
		e := total[[2]uint64{d.Major, d.Minor}]
		if e == nil {
			e = &v2.IOEntry{Major: d.Major, Minor: d.Minor}
			total[[2]uint64{d.Major, d.Minor}] = e
		}
		e.Rbytes += d.Rbytes
		e.Wbytes += d.Wbytes
		e.Rios += d.Rios
		e.Wios += d.Wios
	}
}

func addCPU(total, c *v2.CPUStat) {
	total.UsageUsec += c.GetUsageUsec()
	total.UserUsec += c.GetUserUsec()
	total.SystemUsec += c.GetSystemUsec()
	total.NrPeriods += c.GetNrPeriods()
	total.NrThrottled += c.GetNrThrottled()
	total.ThrottledUsec += c.GetThrottledUsec()
}

func addMemory(total, m *v2.MemoryStat) {
	total.Usage += m.GetUsage()
	total.Anon += m.GetAnon()
	total.File += m.GetFile()
	total.InactiveFile += m.GetInactiveFile()
	total.ActiveFile += m.GetActiveFile()
	total.Pgfault += m.GetPgfault()
	total.Pgmajfault += m.GetPgmajfault()
	total.KernelStack += m.GetKernelStack()
	total.Slab += m.GetSlab()
	total.SwapUsage += m.GetSwapUsage()
}
