package sizing

import (
	"context"

	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// threadsTogether returns how many threads all containers of the pod may have: the
// limit of the pod's cgroup on the host (the kubelet's podPidsLimit), 0 for none. The
// containers' threads are in the guest, where that cgroup counts none of them.
func (p *Pod) threadsTogether(ctx context.Context) uint64 {
	if p.opts.CgroupsPath == "" {
		return 0
	}
	most, err := hostcgroup.ParentThreads(p.opts.CgroupRoot, p.opts.CgroupsPath)
	if err != nil {
		log.G(ctx).WithError(err).Debug("the pod's limit of threads is not set in the guest")
		return p.together.threads
	}
	return most
}

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
