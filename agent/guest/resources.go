package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/katabox/katabox/internal/ctxmutex"
)

const (
	// resourcesWait bounds the wait for CPUs and memory. Memory of a pc-dimm
	// is seen within 0.2 s; virtio-mem brings it block by block. Linux waits
	// ten seconds for a CPU to come up (arch/x86/kernel/smpboot.c), which one
	// that a busy host does not run may need.
	resourcesWait = 30 * time.Second
	resourcesPoll = 20 * time.Millisecond
)

// Resources are the guest's CPUs and memory. Its methods may be called from
// several goroutines, and wait for each other.
//
// Containers need not be told: a cgroup whose cpuset is not set has all CPUs
// that its parent has, also those that come later (Documentation/admin-guide/
// cgroup-v2.rst, "cpuset.cpus").
type Resources struct {
	modules *Modules
	sys     string // where sysfs is

	calls ctxmutex.Mutex // guards memoryDriver
	// memoryDriver: the driver of virtio-mem was loaded.
	memoryDriver bool
}

// Amount is how much there is of each resource.
type Amount struct {
	CPUs      uint32
	MemoryMiB uint64
}

// NewResources makes the Resources of this machine. modules are what the
// driver of memory may be in.
func NewResources(modules *Modules) *Resources {
	return &Resources{modules: modules, sys: "/sys", calls: ctxmutex.New()}
}

// Online brings into use so many CPUs, and all memory that the machine has, and
// returns what is in use. It blocks until that is as much as wanted,
// resourcesWait at most; what is wanted less than there is stays. The error says why there is
// less than wanted, and nothing is undone.
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

// online brings into use what there is by now.
func (r *Resources) online(want Amount) (have Amount, err error) {
	var errs [3]error
	if want.MemoryMiB > 0 {
		errs[0] = r.needMemoryDriver()
	}
	have.CPUs, errs[1] = r.onlineCPUs(want.CPUs)
	have.MemoryMiB, errs[2] = r.onlineMemory()
	return have, errors.Join(errs[:]...)
}
