package resource

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// maxCPUs bounds the numbers in a cpuset: Linux's largest NR_CPUS for x86
// (arch/x86/Kconfig), which exceeds the number of memory nodes.
const maxCPUs = 8192

// CPUSet is a set of CPUs of the host, or of its memory nodes, by their
// numbers. The zero value is empty. A set is immutable.
type CPUSet []uint64 // a bit for each number; nil when it is empty

// ParseCPUSet reads the kernel's list format (cpuset(7)): "0-2,7". Surrounding
// blanks are ignored. The error names the invalid item and is of kind
// errdefs.ErrInvalidArgument; an empty list is an error.
func ParseCPUSet(list string) (CPUSet, error) {
	set := make(CPUSet, maxCPUs/64)
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
	return fmt.Errorf("%q: want a number below %d, or two with a hyphen: %w", item, maxCPUs, errdefs.ErrInvalidArgument)
}

// With returns the union.
func (s CPUSet) With(other CPUSet) CPUSet {
	if len(other) == 0 {
		return s
	}
	union := make(CPUSet, maxCPUs/64)
	copy(union, s)
	for i, word := range other {
		union[i] |= word
	}
	return union
}

// Count returns how many numbers are in it.
func (s CPUSet) Count() int {
	var n int
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All iterates over the numbers in it in ascending order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// String returns the set in the list format: "0-2,7".
func (s CPUSet) String() string {
	var list []byte
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if len(list) > 0 {
			list = append(list, ',')
		}
		if list = strconv.AppendInt(list, int64(first), 10); last > first {
			list = strconv.AppendInt(append(list, '-'), int64(last), 10)
		}
	}
	for n := range s.All() {
		if first < 0 || n > last+1 {
			flush()
			first = n
		}
		last = n
	}
	flush()
	return string(list)
}
