package resource

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Place is what a container, or a whole pod, has of the host's CPUs: which it
// may run on, and how much it gets beside others.
type Place struct {
	// CPUs and Mems are CPUs and memory nodes; empty is all that the
	// cgroup's parent has.
	CPUs, Mems CPUSet
	// Shares is the weight on the scale of cgroup v1, on which DefaultShares
	// is the kernel's default; 0 is not said.
	Shares uint64
}

// OfPause is the place of a pod's pause container. Engines give that one the
// least shares there are, so that it takes nothing from containers that work;
// as the pod's only shares they would starve its machine. They are taken as not
// said.
func (p Place) OfPause() Place {
	if p.Shares <= MinShares {
		p.Shares = 0
	}
	return p
}

// String tells it in words; places that differ have different ones.
func (p Place) String() string {
	return fmt.Sprintf("CPUs %q, memory nodes %q, %d CPU shares", p.CPUs, p.Mems, p.Shares)
}

// The scale of CPU shares: the kernel's default, and its bounds (cgroup v1's
// cpu.shares; kernel/sched/sched.h, MIN_SHARES and MAX_SHARES).
const (
	DefaultShares = 1024
	MinShares     = 2
	MaxShares     = 1 << 18
)

// PlaceOf is the place of a container with those limits; nil is without. The
// error is of kind errdefs.ErrInvalidArgument and names the set that cannot be
// read.
func PlaceOf(r *specs.LinuxResources) (Place, error) {
	var p Place
	if r == nil || r.CPU == nil {
		return p, nil
	}
	if r.CPU.Shares != nil {
		p.Shares = *r.CPU.Shares
	}
	var err error
	if p.CPUs, err = cpusOf(r.CPU); err != nil {
		return Place{}, err
	}
	if r.CPU.Mems != "" {
		if p.Mems, err = ParseCPUSet(r.CPU.Mems); err != nil {
			return Place{}, fmt.Errorf("memory nodes %q: %w", r.CPU.Mems, err)
		}
	}
	return p, nil
}

// cpusOf reads a container's cpuset, if it has one.
func cpusOf(cpu *specs.LinuxCPU) (CPUSet, error) {
	if cpu.Cpus == "" {
		return nil, nil
	}
	set, err := ParseCPUSet(cpu.Cpus)
	if err != nil {
		return nil, fmt.Errorf("cpuset %q: %w", cpu.Cpus, err)
	}
	return set, nil
}

// Together is the place of a pod: all CPUs that its containers may run on, and
// the sum of their shares. One container that may run anywhere lets the pod do
// so, and one without shares has the kernel's default. own is the sandbox's own
// container, which says nothing where it has nothing: beside others it is only
// a pause.
func Together(own Place, containers ...Place) Place {
	pod := own
	anyCPU, anyMem := false, false
	for _, c := range containers {
		anyCPU = anyCPU || c.CPUs.Count() == 0
		anyMem = anyMem || c.Mems.Count() == 0
		pod.CPUs, pod.Mems = pod.CPUs.With(c.CPUs), pod.Mems.With(c.Mems)
		if c.Shares == 0 {
			c.Shares = DefaultShares
		}
		pod.Shares = add(pod.Shares, c.Shares)
	}
	if anyCPU {
		pod.CPUs = nil
	}
	if anyMem {
		pod.Mems = nil
	}
	if pod.Shares == 0 {
		pod.Shares = DefaultShares
	}
	pod.Shares = min(max(pod.Shares, MinShares), MaxShares)
	return pod
}
