package resource

import (
	"cmp"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Updated returns the limits of a container after an update: what the update
// does not name, or names as zero, is unchanged, as in the guest's cgroup. The
// result has only what OfContainer and PlaceOf use. Neither argument is
// changed; both may be nil.
func Updated(old, update *specs.LinuxResources) *specs.LinuxResources {
	limits := specs.LinuxResources{CPU: &specs.LinuxCPU{}, Memory: &specs.LinuxMemory{}}
	for _, r := range []*specs.LinuxResources{old, update} {
		if r == nil {
			continue
		}
		if cpu := r.CPU; cpu != nil {
			replace(&limits.CPU.Quota, cpu.Quota)
			replace(&limits.CPU.Period, cpu.Period)
			replace(&limits.CPU.Shares, cpu.Shares)
			limits.CPU.Cpus = cmp.Or(cpu.Cpus, limits.CPU.Cpus)
			limits.CPU.Mems = cmp.Or(cpu.Mems, limits.CPU.Mems)
		}
		if r.Memory != nil {
			replace(&limits.Memory.Limit, r.Memory.Limit)
			replace(&limits.Memory.Swap, r.Memory.Swap)
			if valueOf(r.Memory.Swap) != 0 {
				limits.Unified = nil
			}
		}
		if swap, ok := r.Unified[swapFile]; ok {
			limits.Unified = map[string]string{swapFile: swap}
		}
		for _, huge := range r.HugepageLimits {
			limits.HugepageLimits = slices.DeleteFunc(limits.HugepageLimits, func(h specs.LinuxHugepageLimit) bool {
				return h.Pagesize == huge.Pagesize
			})
			limits.HugepageLimits = append(limits.HugepageLimits, huge)
		}
	}
	return &limits
}

// replace sets a limit that an update names.
func replace[T int64 | uint64](limit **T, update *T) {
	if update != nil && *update != 0 {
		*limit = update
	}
}
