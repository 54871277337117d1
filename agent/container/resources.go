package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// hugepageSize is how the files of the hugetlb controller name a page size.
var hugepageSize = regexp.MustCompile(`^[1-9][0-9]*[KMG]B$`)

// fitResources removes the limits that the guest's kernel cannot enforce: has
// reports whether its cgroups have a file. It returns what it removed.
func fitResources(r *specs.LinuxResources, has func(file string) bool) (lost []string) {
	if b := r.BlockIO; b != nil && b.Weight != nil && !has("io.bfq.weight") && !has("io.weight") {
		if *b.Weight != 0 {
			lost = append(lost, "the weight of block I/O")
		}
		r.BlockIO = nil
	}
	r.HugepageLimits = slices.DeleteFunc(slices.Clone(r.HugepageLimits), func(l specs.LinuxHugepageLimit) bool {
		gone := !hugepageSize.MatchString(l.Pagesize) || !has("hugetlb."+l.Pagesize+".max")
		if gone && l.Limit > 0 { // Of pages that are not there, none can be had.
			lost = append(lost, "the limit of huge pages of "+l.Pagesize)
		}
		return gone
	})
	unified := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.Unified)) {
		if mayName(key) && has(key) {
			unified[key] = r.Unified[key]
		} else {
			lost = append(lost, "the cgroup's file "+key)
		}
	}
	r.Unified = unified
	return lost
}

// parentHas reports whether the cgroups of containers have a file. It checks
// their parent, which it makes if needed: the root cgroup lacks most files.
func parentHas(file string) bool {
	if makeParent() != nil {
		return false // making a container will fail, and say why
	}
	_, err := os.Stat(filepath.Join(parentDir, file))
	return err == nil
}

const parentDir = fs2.UnifiedMountpoint + cgroupParent

var makeParent = sync.OnceValue(func() error {
	return fs2.CreateCgroupPath(parentDir, &cgroups.Cgroup{Resources: &cgroups.Resources{}})
})

// LimitMemory sets how many bytes all containers together may use; 0 is no limit. If
// they use more, the kernel kills processes of theirs before it returns.
func (*Runtime) LimitMemory(bytes uint64) error {
	if err := makeParent(); err != nil {
		return fmt.Errorf("limit the containers' memory: %w", err)
	}
	limit := "max"
	if bytes > 0 {
		limit = strconv.FormatUint(bytes, 10)
	}
	if err := os.WriteFile(filepath.Join(parentDir, "memory.max"), []byte(limit), 0); err != nil {
		return fmt.Errorf("limit the containers' memory to %s: %w", limit, err)
	}
	return nil
}

// weightless removes the CPU weight of a SCHED_IDLE cgroup: the kernel refuses
// to set one (kernel/sched/fair.c, sched_group_set_shares).
func weightless(r *cgroups.Resources) {
	if idle, ok := r.Unified["cpu.idle"]; r.CPUIdle != nil && *r.CPUIdle != 0 || ok && idle != "0" {
		r.CpuShares, r.CpuWeight = 0, 0
		delete(r.Unified, "cpu.weight")
	}
}
