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
