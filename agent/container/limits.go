package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// limitFile is a file of a cgroup that has a limit (Documentation/admin-guide/cgroup-v2.rst).
type limitFile struct {
	file string
	// named is set if a spec may set the limit by the file's name
	// (linux.resources.unified): what a container may use of its guest, in numbers
	// that mean the same on the host.
	named bool
	// field reports whether a field sets the limit; nil if none can.
	field func(r *cgroups.Resources) bool
}

// limitFiles are all that an update can change, without those of huge pages
// (hugepageFiles). cpu.idle is before cpu.weight, which the kernel lets be set only
// without it.
var limitFiles = []limitFile{
	{"cpu.idle", true, func(r *cgroups.Resources) bool { return r.CPUIdle != nil }},
	{"cpu.weight", true, func(r *cgroups.Resources) bool { return r.CpuWeight != 0 }},
	{"cpu.max.burst", false, func(r *cgroups.Resources) bool { return r.CpuBurst != nil }},
	{"cpu.max", true, func(r *cgroups.Resources) bool { return r.CpuQuota != 0 || r.CpuPeriod != 0 }},
	{"io.bfq.weight", false, func(r *cgroups.Resources) bool { return r.BlkioWeight != 0 }},
	{"io.weight", true, func(r *cgroups.Resources) bool { return r.BlkioWeight != 0 }},
	{"memory.max", false, func(r *cgroups.Resources) bool { return r.Memory != 0 }},
	{"memory.swap.max", true, func(r *cgroups.Resources) bool { return r.MemorySwap != 0 }},
	{"memory.low", true, func(r *cgroups.Resources) bool { return r.MemoryReservation != 0 }},
	{"memory.min", true, nil},
	{"memory.high", true, nil},
	{"memory.oom.group", true, nil},
	{"pids.max", true, func(r *cgroups.Resources) bool { return r.PidsLimit != nil }},
}

// mayName reports whether a spec may set the limit in a file of a cgroup by the file's name.
func mayName(file string) bool {
	return slices.ContainsFunc(limitFiles, func(l limitFile) bool { return l.named && l.file == file })
}

// hugepageFiles returns the files of the huge pages that limits has (fs2's setHugeTlb).
func hugepageFiles(limits *cgroups.Resources) (files []string) {
	for _, l := range limits.HugetlbLimit {
		files = append(files, "hugetlb."+l.Pagesize+".max", "hugetlb."+l.Pagesize+".rsvd.max")
	}
	return files
}

// savedLimit is what a file of a cgroup has said.
type savedLimit struct{ file, value string }

// saveLimits reads what is in force of all that setting limits could change.
func saveLimits(dir string, limits *cgroups.Resources) ([]savedLimit, error) {
	files := hugepageFiles(limits)
	for _, l := range limitFiles {
		files = append(files, l.file)
	}
	var saved []savedLimit
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the guest's kernel does not have it
		}
		if err != nil {
			return nil, fmt.Errorf("read the limits in force: %w", err)
		}
		saved = append(saved, savedLimit{file, strings.TrimSpace(string(text))})
	}
	return saved, nil
}

// restoreLimits restores what saveLimits has read. It does so twice: until the quota is
// restored, the kernel may refuse the burst, and the other way round.
func restoreLimits(saved []savedLimit, restore func(savedLimit) error) error {
	var errs []error
	for range 2 {
		errs = nil
		for _, l := range saved {
			errs = append(errs, restore(l))
		}
	}
	return errors.Join(errs...)
}

// restore writes a limit, if another one is in force: some cannot be written as
// they are read, such as the weight 0 of an idle cgroup.
func (l savedLimit) restore(dir string) error {
	path := filepath.Join(dir, l.file)
	now, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(now)) == l.value {
		return err
	}
	for line := range strings.Lines(l.value) { // io.weight takes one in each write
		if err := os.WriteFile(path, []byte(line), 0); err != nil {
			return err
		}
	}
	return nil
}
