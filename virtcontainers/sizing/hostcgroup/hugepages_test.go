package hostcgroup

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The limits of a cgroup are those of each page size that has one, also 0.
func TestHugepageLimits(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v2": {
			"hugetlb.2MB.max": "4194304\n", "hugetlb.2MB.rsvd.max": "2097152\n", "hugetlb.1GB.max": "0\n", "hugetlb.64KB.max": "max\n",
			"hugetlb.2MB.current": "8\n", "memory.max": "9\n",
		},
		"v1": {
			"hugetlb.2MB.limit_in_bytes": "4194304\n", "hugetlb.2MB.rsvd.limit_in_bytes": "2097152\n", "hugetlb.1GB.limit_in_bytes": "0\n",
			"hugetlb.64KB.limit_in_bytes": "9223372036854710272\n", "hugetlb.2MB.max_usage_in_bytes": "8\n",
		},
	} {
		dir := t.TempDir()
		for file, text := range files {
			writeFile(t, filepath.Join(dir, file), text)
		}
		got, err := hugepageLimits(dir)
		want := []specs.LinuxHugepageLimit{{Pagesize: "1GB"}, {Pagesize: "2MB", Limit: 4 << 20}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got: %s", name, err, diff)
		}
	}
	if got, err := hugepageLimits(filepath.Join(t.TempDir(), "none")); len(got) > 0 || err != nil {
		t.Errorf("a cgroup that does not exist: %v, %v", got, err)
	}
}
