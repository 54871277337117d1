package resource

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// maxCPUs bounds the numbers in a cpuset: Linux's largest NR_CPUS for x86
// (arch/x86/Kconfig).
const maxCPUs = 8192

// cpuSet has a bit for each CPU that is in it.
type cpuSet []uint64

// parseCPUSet reads the kernel's list format (cpuset(7)): "0-2,7".
func parseCPUSet(list string) (cpuSet, error) {
	set := make(cpuSet, maxCPUs/64)
	for item := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 16)
		if err != nil {
			return nil, invalid(item)
		}
		last, err := strconv.ParseUint(high, 10, 16)
		if err != nil || last < first || last >= maxCPUs {
			return nil, invalid(item)
		}
		for cpu := first; cpu <= last; cpu++ {
			set[cpu/64] |= 1 << (cpu % 64)
		}
	}
	return set, nil
}

func invalid(item string) error {
	return fmt.Errorf("%q: want a CPU number below %d, or two with a hyphen: %w", item, maxCPUs, errdefs.ErrInvalidArgument)
}

// with is the union.
func (s cpuSet) with(other cpuSet) cpuSet {
	if len(other) == 0 {
		return s
	}
	union := make(cpuSet, maxCPUs/64)
	copy(union, s)
	for i, word := range other {
		union[i] |= word
	}
	return union
}

// count is how many CPUs are in it.
func (s cpuSet) count() uint64 {
	var n int
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return uint64(n)
}
