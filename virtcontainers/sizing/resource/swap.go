package resource

import (
	"math"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// NoSwapLimit is the value of a limit of swap that is not set.
const NoSwapLimit = math.MaxUint64

// swapFile is the key of a limit of swap in OCI's linux.resources.unified: the kubelet sets
// it for every container with cgroup v2.
const swapFile = "memory.swap.max"

// swapOf returns a container's limit of swap, as the guest's cgroup has it
// (github.com/opencontainers/cgroups, ConvertMemorySwapToCgroupV2Value): the limit by the
// file's name or, beside a limit of memory, what that of memory and swap leaves. A value
// that cannot be read is no limit; the guest refuses it.
func swapOf(r *specs.LinuxResources) uint64 {
	if r == nil {
		return NoSwapLimit
	}
	if text, ok := r.Unified[swapFile]; ok {
		return swapLimit(text)
	}
	if r.Memory == nil {
		return NoSwapLimit
	}
	limit, both := valueOf(r.Memory.Limit), valueOf(r.Memory.Swap)
	if limit <= 0 || both <= 0 {
		return NoSwapLimit
	}
	return uint64(max(both-limit, 0))
}

// swapLimit reads what the kernel reads from the file (mm/page_counter.c,
// page_counter_memparse): "max", or a number with or without a unit.
func swapLimit(text string) uint64 {
	const units = "KMGTPE"
	digits, shift := strings.TrimSpace(text), 0
	if digits != "" {
		if unit := strings.Index(units, strings.ToUpper(digits[len(digits)-1:])); unit >= 0 {
			digits, shift = digits[:len(digits)-1], 10*(unit+1)
		}
	}
	n, err := strconv.ParseUint(digits, 0, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return NoSwapLimit
	}
	return n << shift
}

// SwapText returns a limit of swap as the kernel's file takes it.
func SwapText(limit uint64) string {
	if limit == NoSwapLimit {
		return "max"
	}
	return strconv.FormatUint(limit, 10)
}
