package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/internal/ctxmutex"
)

const (
	// resourcesWait bounds the wait for CPUs and memory. Memory of a pc-dimm
	// is seen within 0.2 s; virtio-mem adds it block by block. Linux waits ten
	// seconds for a CPU to come up (arch/x86/kernel/smpboot.c), which a CPU on
	// a busy host may need.
	resourcesWait = 30 * time.Second
	resourcesPoll = 20 * time.Millisecond
)

// Resources manages the guest's CPUs and memory. Its methods may be called from
// several goroutines, and are serialized.
//
// Containers need no update: a cgroup whose cpuset is not set has all CPUs of
// its parent, including later ones (Documentation/admin-guide/ cgroup-v2.rst,
// "cpuset.cpus").
type Resources struct {
	modules *Modules
	sys     string // where sysfs is
	proc    string // where proc is

	calls ctxmutex.Mutex // guards memoryDriver and net
	// memoryDriver is set once virtio-mem's driver was loaded.
	memoryDriver bool
	net          *netLimits
}

// Amount is how much there is of each resource.
type Amount struct {
	CPUs      uint32
	MemoryMiB uint64
}

// NewResources makes the Resources of this machine. It must be called before there are
// containers, which may change the limits that follow memory. modules may contain the
// memory driver.
func NewResources(modules *Modules) *Resources {
	return &Resources{modules: modules, sys: "/sys", proc: "/proc", calls: ctxmutex.New(), net: readNetLimits("/proc")}
}

// Online brings the wanted CPUs, and all of the machine's memory, online and
// returns what is in use. It blocks until that is as much as wanted,
// resourcesWait at most; it takes nothing offline. The error says why there is
// less than wanted, and nothing is undone. The kernel's limits on threads and on the
// network then follow the memory.
func (r *Resources) Online(ctx context.Context, want Amount) (Amount, error) {
	ctx, cancel := context.WithTimeout(ctx, resourcesWait)
	defer cancel()
	if err := r.calls.Lock(ctx); err != nil {
		return Amount{}, fmt.Errorf("wait for a concurrent call: %w", err)
	}
	defer r.calls.Unlock()
	poll := time.NewTicker(resourcesPoll)
	defer poll.Stop()
	for {
		have, err := r.online(want)
		if have.CPUs >= want.CPUs && have.MemoryMiB >= want.MemoryMiB {
			r.raiseLimits(ctx, have.MemoryMiB)
			return have, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return have, errors.Join(fmt.Errorf("%d CPUs and %d MiB are in use, want %d and %d: %w",
				have.CPUs, have.MemoryMiB, want.CPUs, want.MemoryMiB, ctx.Err()), err)
		}
	}
}

// raiseLimits has limits of the kernel follow the memory that was added.
func (r *Resources) raiseLimits(ctx context.Context, mib uint64) {
	if err := r.raiseThreads(mib); err != nil {
		log.G(ctx).WithError(err).Warn("the kernel allows no more threads for the memory that was added")
	}
	if err := r.net.raise(mib); err != nil {
		log.G(ctx).WithError(err).Warn("limits of the network do not follow the memory that was added")
	}
}

// online brings online what exists now.
func (r *Resources) online(want Amount) (have Amount, err error) {
	var errs [3]error
	if want.MemoryMiB > 0 {
		errs[0] = r.needMemoryDriver()
	}
	have.CPUs, errs[1] = r.onlineCPUs(want.CPUs)
	have.MemoryMiB, errs[2] = r.onlineMemory()
	return have, errors.Join(errs[:]...)
}
