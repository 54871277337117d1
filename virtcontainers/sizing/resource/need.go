package resource

import (
	"math"
	"math/bits"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// perCPU is the number of parts of a CPU in which CPUs are counted:
	// integers, because 0.1 + 0.2 + 0.7 exceeds 1 in floating point. A fraction
	// is rounded down: three times 2/3 is 2.
	perCPU = 1_000_000
	// defaultPeriod is the kernel's period of a quota without one, in
	// microseconds (kernel/sched/core.c, default_cfs_period).
	defaultPeriod = 100_000
	// unlimited is the smallest value that means no memory limit: cgroup v1
	// shows the largest number of whole pages in an int64 (mm/memcontrol-v1.c,
	// PAGE_COUNTER_MAX).
	unlimited = math.MaxInt64 &^ 4095
	// sharesPerCPU is CRI's scale of CPU shares; minShares is what it gives a
	// container without a request (the kernel's MIN_SHARES).
	sharesPerCPU, minShares = 1024, MinShares
)

// Need is what a container, or a whole pod, is allowed to use beside the
// machine's own size. The zero value is nothing.
type Need struct {
	// cpu is in parts of perCPU; it does not include pinned.
	cpu uint64
	// requested says that cpu is what a pod requests, which limits nothing.
	requested bool
	// pinned are the CPUs of a container that has a cpuset and no quota.
	pinned CPUSet
	// memory is in bytes.
	memory uint64
	// podsCPU and podsMemory say that these are the pod's own limits (Under).
	podsCPU, podsMemory bool
}

// MemoryBytes is the memory in bytes.
func (n Need) MemoryBytes() uint64 { return n.memory }

// OfContainer returns the need of a container with those limits; nil means no
// limits. A zero or negative limit is none, as for the kernel and the engines,
// and so is a memory limit beyond an address space. Swap does not count: it is
// not the machine's memory. It fails with errdefs.ErrInvalidArgument for a
// cpuset that cannot be parsed.
func OfContainer(r *specs.LinuxResources) (Need, error) {
	var n Need
	if r == nil {
		return n, nil
	}
	if err := n.addCPU(r.CPU); err != nil {
		return Need{}, err
	}
	if r.Memory != nil && r.Memory.Limit != nil {
		n.memory = memoryLimit(*r.Memory.Limit)
	}
	for _, huge := range r.HugepageLimits {
		if huge.Limit < unlimited {
			n.memory = add(n.memory, huge.Limit)
		}
	}
	return n, nil
}

// OfKubelet is OfContainer for a container of Kubernetes, whose set of CPUs counts only if
// no other container may use them. The kubelet's static CPU manager gives each of the
// others the CPUs that are left (pkg/kubelet/cm, PreCreateContainer): most of the node's,
// and others whenever a pod comes or goes.
func OfKubelet(r *specs.LinuxResources) (Need, error) {
	n, err := OfContainer(r)
	if cpus := n.pinned.Count(); cpus > 0 && !exclusive(r.CPU, cpus) {
		n.pinned = nil
	}
	return n, err
}

// exclusive reports whether the kubelet has given a container that many CPUs for itself:
// it does so for a request of just as many, and the shares tell the request. Only other
// clients of CRI set none.
func exclusive(cpu *specs.LinuxCPU, cpus int) bool {
	shares := valueOf(cpu.Shares)
	return shares == 0 || shares == min(sharesPerCPU*uint64(cpus), MaxShares)
}

func (n *Need) addCPU(cpu *specs.LinuxCPU) error {
	if cpu == nil {
		return nil
	}
	if cpu.Quota != nil && *cpu.Quota > 0 {
		var period uint64
		if cpu.Period != nil {
			period = *cpu.Period
		}
		n.cpu = quota(*cpu.Quota, period)
		return nil
	}
	var err error
	n.pinned, err = cpusOf(cpu)
	return err
}

// quota converts a quota and its period, both in microseconds, to parts of a
// CPU.
func quota(quota int64, period uint64) uint64 {
	if quota <= 0 {
		return 0
	}
	if period == 0 {
		period = defaultPeriod
	}
	return scale(uint64(quota), perCPU, period)
}

// scale returns n * by / per, rounded down; it saturates.
func scale(n, by, per uint64) uint64 {
	hi, lo := bits.Mul64(n, by)
	if hi >= per {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, per)
	return q
}

func memoryLimit(limit int64) uint64 {
	if limit <= 0 || limit >= unlimited {
		return 0
	}
	return uint64(limit)
}

// add returns a + b; it saturates.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
