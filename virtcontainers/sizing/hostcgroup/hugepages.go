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

// unlimitedPages is less than v1's value for no limit, and more than any host has.
const unlimitedPages = 1 << 62

// HugepageLimits returns how much of huge pages the closest cgroup above a pod's allows,
// for each of their sizes that it limits. Of a pod of Kubernetes that is the cgroup of
// the kubelet for the pod. The arguments are MemoryLimit's.
func HugepageLimits(root, cgroupsPath string) ([]specs.LinuxHugepageLimit, error) {
	if root == "" {
		root = DefaultRoot
	}
	path, err := podPath(cgroupsPath, "pod")
	if err != nil {
		return nil, err
	}
	found, err := hierarchies(root)
	if err != nil {
		return nil, err
	}
	for _, h := range found {
		if h.unified || h.has("hugetlb") {
			return hugepageLimits(filepath.Dir(h.dir(path)))
		}
	}
	return nil, nil
}

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
		if limit < unlimitedPages {
			limits = append(limits, specs.LinuxHugepageLimit{Pagesize: name[1], Limit: limit})
		}
	}
	return limits, nil
}
