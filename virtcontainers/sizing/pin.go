package sizing

import (
	"context"
	"fmt"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// pin binds each vCPU to one CPU of the host, if the configuration says so and
// their numbers are equal. The CPUs are cpus or, if that is empty, those on
// which the machine's process may run. With different numbers all vCPUs run on
// all of them. The result is logged when it differs from the last time; a
// machine whose vCPUs could not be bound still runs.
//
// The caller holds resizes. pin must be called when vCPUs were added or removed
// and when the pod's cpuset was written: the kernel then lets the threads run
// on all of it again (kernel/cgroup/cpuset.c, cpuset_update_tasks_cpumask;
// newer kernels keep a thread's binding while that is in the set).
func (p *Pod) pin(ctx context.Context, cpus resource.CPUSet) {
	if !p.opts.Config.Runtime.PinVCPUs {
		return
	}
	what := "each vCPU is bound to a CPU of the host"
	vcpus, free, err := p.pinVCPUs(ctx, cpus)
	switch {
	case err != nil:
		what = "vCPUs are not bound to CPUs of the host"
	case vcpus != free:
		what = "vCPUs are not bound to CPUs of the host: their numbers differ"
	}
	said := fmt.Sprint(what, vcpus, free, err)
	if p.pinned == said {
		return
	}
	p.pinned = said
	entry := log.G(ctx).WithFields(log.Fields{"vcpus": vcpus, "cpus": free})
	if err != nil {
		entry.WithError(err).Warn(what)
		return
	}
	entry.Info(what)
}

// pinVCPUs returns the number of vCPU threads, and of the CPUs on which they
// may run.
func (p *Pod) pinVCPUs(ctx context.Context, cpus resource.CPUSet) (vcpus, free int, err error) {
	threads, used, err := p.vm.VCPUThreads(ctx)
	if err != nil {
		return 0, 0, err
	}
	threads = threads[:used]
	var on unix.CPUSet
	if cpus.Count() == 0 {
		if err := unix.SchedGetaffinity(p.vm.PID(), &on); err != nil {
			return 0, 0, fmt.Errorf("find CPUs of process %d: %w", p.vm.PID(), err)
		}
	}
	for n := range cpus.All() {
		on.Set(n) // ignores what is beyond its 1024
	}
	free, err = bindThreads(threads, on)
	return len(threads), free, err
}

// bindThreads lets threads run on all of those CPUs that are online and in the
// threads' cpuset; if there are as many as threads, it binds each thread to
// one, in order.
func bindThreads(threads []int, on unix.CPUSet) (free int, err error) {
	for _, id := range threads {
		if err := unix.SchedSetaffinity(id, &on); err != nil {
			return 0, fmt.Errorf("let thread %d run on %d CPUs: %w", id, on.Count(), err)
		}
		// The kernel has removed CPUs that this thread may not use
		// (kernel/sched/syscalls.c, __sched_setaffinity). All threads are in
		// one cgroup.
		if err := unix.SchedGetaffinity(id, &on); err != nil {
			return 0, fmt.Errorf("find CPUs of thread %d: %w", id, err)
		}
	}
	if on.Count() != len(threads) {
		return on.Count(), nil
	}
	cpu := -1
	for _, id := range threads {
		for cpu++; !on.IsSet(cpu); {
			cpu++
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(id, &one); err != nil {
			return 0, fmt.Errorf("bind thread %d to CPU %d: %w", id, cpu, err)
		}
	}
	return len(threads), nil
}
