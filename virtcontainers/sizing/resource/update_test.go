package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestUpdated(t *testing.T) {
	full := func(quota int64, period uint64, cpus string, limit int64, pages ...specs.LinuxHugepageLimit) *specs.LinuxResources {
		return &specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period, Shares: &period, Cpus: cpus, Mems: cpus},
			Memory: &specs.LinuxMemory{Limit: &limit}, HugepageLimits: pages,
		}
	}
	small, large := specs.LinuxHugepageLimit{Pagesize: "2MB", Limit: 1}, specs.LinuxHugepageLimit{Pagesize: "1GB", Limit: 2}
	old := full(1, 2, "3", 4, small, large)
	tests := []struct {
		name        string
		old, update *specs.LinuxResources
		want        *specs.LinuxResources
	}{
		{"nothing", nil, nil, &specs.LinuxResources{CPU: &specs.LinuxCPU{}, Memory: &specs.LinuxMemory{}}},
		{"first limits", nil, full(5, 6, "7", 8, small), full(5, 6, "7", 8, small)},
		{"no change", old, &specs.LinuxResources{}, old},
		{"zeros change nothing", old, full(0, 0, "", 0), old},
		{"all", old, full(-1, 6, "7", -1, specs.LinuxHugepageLimit{Pagesize: "2MB"}),
			full(-1, 6, "7", -1, large, specs.LinuxHugepageLimit{Pagesize: "2MB"})},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, Updated(test.old, test.update)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if diff := cmp.Diff(full(1, 2, "3", 4, small, large), old); diff != "" {
		t.Errorf("the old limits have changed:\n%s", diff)
	}
}
