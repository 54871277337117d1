package metrics

import (
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
)

// Sum adds up the usage of several containers: what a pod uses. Limits are not
// added.
func Sum(all []*v2.Metrics) *v2.Metrics {
	total := &v2.Metrics{Pids: new(v2.PidsStat), CPU: new(v2.CPUStat), Memory: new(v2.MemoryStat), Io: new(v2.IOStat)}
	for _, m := range all {
		total.Pids.Current += m.GetPids().GetCurrent()
		addCPU(total.CPU, m.GetCPU())
		addMemory(total.Memory, m.GetMemory())
		total.Io.Usage = append(total.Io.Usage, m.GetIo().GetUsage()...)
		if total.Network == nil {
			total.Network = m.GetNetwork() // the pod's, the same for each
		}
	}
	return total
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
