package resource

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Place is a container's, or a whole pod's, part of the host's CPUs, on which it may
// run, and its weight; and of the host's swap.
type Place struct {
	// CPUs and Mems are CPUs and memory nodes; empty means those of the
	// cgroup's parent.
	CPUs, Mems CPUSet
	// Shares is the weight on the scale of cgroup v1, on which DefaultShares is
	// the kernel's default; 0 is unset.
	Shares uint64
	// Swap is the limit of swap in bytes; NoSwapLimit is none.
	Swap uint64

	// pause marks the place of a pause container.
	pause bool
}

// OfPause returns the place as that of a pod's pause container. Engines give it
// the minimum shares, so that it takes nothing from the other containers; as
// the pod's only shares they would starve its machine. So they count as unset.
// Its CPUs and nodes count only while it is alone: CRI-O runs the pause containers
// of all pods on the CPUs of the host's own work (infra_ctr_cpuset), where no other
// container of the pod may run. It does not need swap.
func (p Place) OfPause() Place {
	p.pause, p.Swap = true, 0
	if p.Shares <= MinShares {
		p.Shares = 0
	}
	return p
}

// String describes the place; different places have different descriptions.
func (p Place) String() string {
	return fmt.Sprintf("CPUs %q, memory nodes %q, %d CPU shares, %s bytes of swap", p.CPUs, p.Mems, p.Shares, SwapText(p.Swap))
}

// The scale of CPU shares: the kernel's default, and its bounds (cgroup v1's
// cpu.shares; kernel/sched/sched.h, MIN_SHARES and MAX_SHARES).
const (
	DefaultShares = 1024
	MinShares     = 2
	MaxShares     = 1 << 18
)

// PlaceOf returns the place of a container with those limits; nil means no
// limits. The error is of kind errdefs.ErrInvalidArgument and names the set
// that cannot be parsed.
func PlaceOf(r *specs.LinuxResources) (Place, error) {
	p := Place{Swap: swapOf(r)}
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

// Together returns the place of a pod: all CPUs on which its containers may
// run, and the sums of their shares and of their limits of swap. If one container may run anywhere, so may
// the pod; a container without shares has the kernel's default. own is the
// sandbox's own container; its unset values do not count beside other
// containers, because it is then only a pause container.
func Together(own Place, containers ...Place) Place {
	pod := own
	if own.pause && len(containers) > 0 {
		pod.CPUs, pod.Mems = nil, nil
	}
	anyCPU, anyMem := false, false
	for _, c := range containers {
		anyCPU = anyCPU || c.CPUs.Count() == 0
		anyMem = anyMem || c.Mems.Count() == 0
		pod.CPUs, pod.Mems = pod.CPUs.With(c.CPUs), pod.Mems.With(c.Mems)
		if c.Shares == 0 {
			c.Shares = DefaultShares
		}
		pod.Shares, pod.Swap = add(pod.Shares, c.Shares), add(pod.Swap, c.Swap)
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
