package sizing

import (
	"github.com/katabox/katabox/virtcontainers/config"
)

const (
	// diskWorkers is how many threads QEMU starts at most for the disks of its main loop,
	// and for those of each thread for disks (QEMU's util/thread-pool.c, max_threads).
	diskWorkers = 64
	// uringEntries is the size of the ring that each of them has with io_uring (QEMU's
	// block/io_uring.c, MAX_ENTRIES).
	uringEntries = 128
	// nicRoom is for how many NICs the kernel's threads count: a pod's, which has one, and
	// one more. otherThreads has room for those of a few others.
	nicRoom = 2
	// otherThreads is room for QEMU's other threads, and for the processes that stand for
	// containers.
	otherThreads = 64
)

// NICQueues returns how many queue pairs each NIC has: one for each vCPU of the size that
// the machine has, or had if it did not start plain.
func (p *Pod) NICQueues() int { return int(p.nicQueues) }

// vmThreads returns how many threads the machine's process can need.
func (p *Pod) vmThreads() uint64 {
	h := p.opts.Config.Hypervisor
	disks, workers := uint64(h.BlockThreads()), uint64(diskWorkers)
	if h.BlockAIO == config.AIOUring {
		workers += uringWorkers(config.HostCPUs())
	}
	return uint64(max(p.most.VCPUs, p.initial.VCPUs)) + (1+disks)*workers + disks + p.vhostThreads() + otherThreads
}

// uringWorkers returns how many threads the kernel adds at most to a process for one thread
// that uses io_uring, for what it cannot begin at once: flushes, and direct writes that
// allocate blocks (io_uring/tctx.c, io_init_wq_offload); before Linux 6.4 for each of the host's
// NUMA nodes that it runs on (io_uring/io-wq.c, io_wq_create), which are not counted. They stand in for none of QEMU's
// own, which still discards and writes zeros.
func uringWorkers(hostCPUs int) uint64 { return min(uringEntries, 4*uint64(hostCPUs)) }

// vhostThreads returns how many threads the kernel adds for vhost: from Linux 6.4 on, one for
// each open device (kernel/vhost_task.c), which are one for each queue pair of a NIC, and
// one for vsock.
func (p *Pod) vhostThreads() uint64 {
	const vsock = 1
	if p.opts.Config.Hypervisor.DisableVhostNet {
		return vsock
	}
	return nicRoom*uint64(p.nicQueues) + vsock
}
