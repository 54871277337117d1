package hypervisor

import "context"

// VCPUThreader is the part of a VM that lists the threads of its vCPUs. A monitor
// that cannot fails with errdefs.ErrNotImplemented.
type VCPUThreader interface {
	// VCPUThreads lists the ids, as the host knows them, of the threads that
	// run vCPUs now, each once and in the order of their vCPUs' numbers; one
	// thread may run several. The first used of them run CPUs that the guest
	// was given; the others wait for that, if the guest is honest. A vCPU that
	// is added gets a thread that is not in an earlier list. It fails when the
	// machine has ended.
	VCPUThreads(ctx context.Context) (threads []int, used int, err error)
}
