package hypervisor

import "context"

// VCPUThreader is the part of a VM that lists the threads of its vCPUs. A VM
// without that ability returns errdefs.ErrNotImplemented.
type VCPUThreader interface {
	// VCPUThreads lists the host ids of the threads that run vCPUs now, each
	// once and in the order of their vCPUs' numbers; one thread may run
	// several (ThreadingSingle). The first used of them run CPUs that the guest
	// may use; the others are idle, unless the guest is hostile. A vCPU that is
	// plugged gets a thread that is not in any earlier list. It fails when the
	// machine has ended.
	VCPUThreads(ctx context.Context) (threads []int, used int, err error)
}
