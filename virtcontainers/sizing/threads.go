package sizing

const (
	// diskWorkers is how many threads QEMU starts at most for the disks of its main loop,
	// and for those of each thread for disks (QEMU's util/thread-pool.c, max_threads).
	diskWorkers = 64
	// otherThreads is room for QEMU's other threads, and for the processes that stand for
	// containers.
	otherThreads = 64
)

// vmThreads returns how many threads the machine's process can need.
func (p *Pod) vmThreads() uint64 {
	disks := uint64(p.opts.Config.Hypervisor.BlockThreads())
	return uint64(max(p.most.VCPUs, p.initial.VCPUs)) + (1+disks)*diskWorkers + disks + otherThreads
}
