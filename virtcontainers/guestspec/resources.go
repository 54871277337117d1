package guestspec

import "github.com/opencontainers/runtime-spec/specs-go"

// maxSwappiness is the largest vm.swappiness a cgroup takes; engines send
// 2^64-1 for "not set" (iSulad).
const maxSwappiness = 200

// LostLimits names the limits that a guest does not get, as Guest.Dropped does. They
// are not changed.
func LostLimits(limits *specs.LinuxResources) []string {
	r := *limits
	if limits.CPU != nil {
		cpu := *limits.CPU
		r.CPU = &cpu
	}
	if limits.Memory != nil {
		memory := *limits.Memory
		r.Memory = &memory
	}
	var g Guest
	g.filterResources(&r)
	return g.Dropped
}

// filterResources keeps the limits that the guest's cgroups may enforce; the
// agent knows which of them its kernel supports. Limits that refer to the
// host's numbers, or exist only in cgroup v1, are removed.
//
// The CPUs and memory nodes of a cpuset are bound on the host, which runs the
// guest's vCPUs on them: no limit is lost.
func (g *Guest) filterResources(r *specs.LinuxResources) {
	if n := r.Network; n != nil && (n.ClassID != nil && *n.ClassID != 0 || len(n.Priorities) > 0) {
		g.Dropped = append(g.Dropped, "class and priorities of network traffic")
	}
	if len(r.Rdma) > 0 {
		g.Dropped = append(g.Dropped, "limits of RDMA")
	}
	r.Network, r.Rdma = nil, nil
	if r.CPU != nil {
		g.filterCPU(r.CPU)
	}
	if r.Memory != nil {
		g.filterMemory(r.Memory)
	}
	if b := r.BlockIO; b != nil {
		if perDevice(b) {
			g.Dropped = append(g.Dropped, "weights and limits of single block devices")
		}
		if b.LeafWeight != nil && *b.LeafWeight != 0 {
			g.Dropped = append(g.Dropped, "the leaf weight of block I/O")
		}
		r.BlockIO = &specs.LinuxBlockIO{Weight: b.Weight}
	}
}

// filterMemory keeps what cgroup v2 supports. cgroup v2 is always hierarchical,
// so dropping useHierarchy loses nothing.
func (g *Guest) filterMemory(m *specs.LinuxMemory) {
	isSet := func(limit *int64) bool { return limit != nil && *limit != 0 && *limit != -1 }
	if isSet(m.Kernel) || isSet(m.KernelTCP) { //nolint:staticcheck // deprecated, and still sent
		g.Dropped = append(g.Dropped, "the limits of kernel memory")
	}
	if m.Swappiness != nil && *m.Swappiness <= maxSwappiness {
		g.Dropped = append(g.Dropped, "swappiness")
	}
	if m.DisableOOMKiller != nil && *m.DisableOOMKiller {
		g.Dropped = append(g.Dropped, "running out of memory without a kill")
	}
	m.Kernel, m.KernelTCP, m.Swappiness, m.DisableOOMKiller, m.UseHierarchy = nil, nil, nil, nil, nil //nolint:staticcheck // as above
}

func (g *Guest) filterCPU(c *specs.LinuxCPU) {
	if c.RealtimeRuntime != nil && *c.RealtimeRuntime != 0 {
		g.Dropped = append(g.Dropped, "CPU time of real-time processes")
	}
	c.Cpus, c.Mems = "", ""
	c.RealtimePeriod, c.RealtimeRuntime = nil, nil
}

// perDevice reports whether a limit names block devices: their numbers are the
// host's.
func perDevice(b *specs.LinuxBlockIO) bool {
	return len(b.WeightDevice)+len(b.ThrottleReadBpsDevice)+len(b.ThrottleWriteBpsDevice)+
		len(b.ThrottleReadIOPSDevice)+len(b.ThrottleWriteIOPSDevice) > 0
}
