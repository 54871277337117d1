package hostcgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// hugepageFile matches the names of the files with a cgroup's limits of huge pages, of v2
// and v1 (Documentation/admin-guide/cgroup-v2.rst, "HugeTLB";
// cgroup-v1/hugetlb.rst). Those of reservations ("hugetlb.2MB.rsvd.max") are not among
// them.
var hugepageFile = regexp.MustCompile(`^hugetlb\.([0-9]+[KMG]B)\.(max|limit_in_bytes)$`)

// hugepageLimits reads the limits of the cgroup with that directory. One that does not
// exist has none.
func hugepageLimits(dir string) ([]specs.LinuxHugepageLimit, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the limits of a cgroup: %w", err)
	}
	var limits []specs.LinuxHugepageLimit
	for _, file := range files {
		name := hugepageFile.FindStringSubmatch(file.Name())
		if name == nil {
			continue
		}
		limit, err := readLimit(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		if limit != NoLimit {
			limits = append(limits, specs.LinuxHugepageLimit{Pagesize: name[1], Limit: limit})
		}
	}
	return limits, nil
}

// hugepageSize returns the size as it is in the names of those files (the kernel's
// mm/hugetlb_cgroup.c, mem_fmt); 0 has none.
func hugepageSize(mib uint64) string {
	switch {
	case mib == 0:
		return ""
	case mib >= 1<<10:
		return fmt.Sprintf("%dGB", mib>>10)
	}
	return fmt.Sprintf("%dMB", mib)
}

// leastHugepages returns the least limit of huge pages of a size, in bytes, of the pod's
// parent and its ancestors, and the path of the file that has it. A limit of reservations
// is one, too: QEMU's memory is reserved when it is mapped (mm/hugetlb.c,
// hugetlb_reserve_pages).
func (p parent) leastHugepages(size string) (least uint64, path string, err error) {
	if size == "" || !p.limitsHugepages() {
		return NoLimit, "", nil
	}
	limit := "limit_in_bytes"
	if p.unified {
		limit = "max"
	}
	return p.leastAbove(p.dir, "hugetlb."+size+"."+limit, "hugetlb."+size+".rsvd."+limit)
}
