package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// having is a kernel whose cgroups have these files.
func having(files ...string) func(string) bool {
	all := map[string]bool{}
	for _, f := range files {
		all[f] = true
	}
	return func(file string) bool { return all[file] }
}

func TestFitResources(t *testing.T) {
	asked := func() *specs.LinuxResources {
		return &specs.LinuxResources{
			BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
			HugepageLimits: []specs.LinuxHugepageLimit{
				{Pagesize: "2MB", Limit: 1}, {Pagesize: "1GB"}, {Pagesize: "64KB", Limit: 2}, {Pagesize: "../cpu", Limit: 3},
			},
			Unified: map[string]string{"memory.high": "4", "cpuset.cpus": "0-3", "io.weight": "7", "cgroup.kill": "1", "../x": "5"},
		}
	}
	all := []string{
		"io.weight", "hugetlb.2MB.max", "hugetlb.1GB.max", "memory.high", "cpuset.cpus", "cgroup.kill", "../x", "hugetlb.../cpu.max",
	}
	tests := map[string]struct {
		has  func(string) bool
		want *specs.LinuxResources
		lost []string
	}{
		"all": {
			having(all...),
			&specs.LinuxResources{
				BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}, {Pagesize: "1GB"}},
				Unified:        map[string]string{"memory.high": "4", "io.weight": "7"},
			},
			[]string{
				"the limit of huge pages of 64KB", "the limit of huge pages of ../cpu",
				"the cgroup's file ../x", "the cgroup's file cgroup.kill", "the cgroup's file cpuset.cpus",
			},
		},
		"bfq": {
			having("io.bfq.weight", "hugetlb.2MB.max", "hugetlb.64KB.max", "memory.high"),
			&specs.LinuxResources{
				BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}, {Pagesize: "64KB", Limit: 2}},
				Unified:        map[string]string{"memory.high": "4"},
			},
			[]string{
				"the limit of huge pages of ../cpu", "the cgroup's file ../x", "the cgroup's file cgroup.kill",
				"the cgroup's file cpuset.cpus", "the cgroup's file io.weight",
			},
		},
		"nothing": {
			having(), &specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{}, Unified: map[string]string{}},
			[]string{
				"the weight of block I/O", "the limit of huge pages of 2MB", "the limit of huge pages of 64KB",
				"the limit of huge pages of ../cpu", "the cgroup's file ../x", "the cgroup's file cgroup.kill",
				"the cgroup's file cpuset.cpus", "the cgroup's file io.weight", "the cgroup's file memory.high",
			},
		},
	}
	for name, test := range tests {
		got := asked()
		lost := fitResources(got, test.has)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(test.lost, lost); diff != "" {
			t.Errorf("%s: lost: %s", name, diff)
		}
	}
	if lost := fitResources(&specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(0))}}, having()); lost != nil {
		t.Errorf("lost %q, though nothing was asked for", lost)
	}
}

func TestMergeLimits(t *testing.T) {
	to := &cgroups.Resources{
		BlkioWeight: 10, HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "2MB", Limit: 1}, {Pagesize: "1GB", Limit: 2}},
		Unified: map[string]string{"cpu.max": "1 2", "memory.high": "3", "pids.max": "4"},
	}
	before := map[string]string{"cpu.max": "1 2", "memory.high": "3", "pids.max": "4"}
	old := to.Unified
	mergeResources(to, &cgroups.Resources{
		BlkioWeight: 20, HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "2MB", Limit: 0}},
		CpuQuota: 7, Unified: map[string]string{"pids.max": "5", "memory.low": "6"},
	})
	want := &cgroups.Resources{
		BlkioWeight: 20, HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "1GB", Limit: 2}, {Pagesize: "2MB", Limit: 0}},
		CpuQuota: 7, Unified: map[string]string{"memory.high": "3", "pids.max": "5", "memory.low": "6"},
	}
	if diff := cmp.Diff(want, to); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, old); diff != "" {
		t.Errorf("the limits of before were changed: %s", diff)
	}
}

func TestWeightless(t *testing.T) {
	for name, test := range map[string]struct {
		r      cgroups.Resources
		weight uint64
	}{
		"idle":            {cgroups.Resources{CPUIdle: ptr(int64(1)), CpuWeight: 5}, 0},
		"not idle":        {cgroups.Resources{CPUIdle: ptr(int64(0)), CpuWeight: 5}, 5},
		"idle by name":    {cgroups.Resources{Unified: map[string]string{"cpu.idle": "1", "cpu.weight": "9"}, CpuWeight: 5}, 0},
		"nothing is said": {cgroups.Resources{CpuWeight: 5}, 5},
	} {
		weightless(&test.r)
		if _, named := test.r.Unified["cpu.weight"]; test.r.CpuWeight != test.weight || named {
			t.Errorf("%s: weight %d, by name: %v", name, test.r.CpuWeight, named)
		}
	}
}
