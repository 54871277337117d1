package container

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// unlimited is what a new cgroup's files say (Documentation/admin-guide/cgroup-v2.rst).
var unlimited = map[string]string{
	"cgroup.controllers": "cpu io memory pids hugetlb\n", "memory.current": "0\n", "cpu.idle": "0\n", "cpu.max": "max 100000\n", "cpu.max.burst": "0\n",
	"cpu.weight": "100\n", "io.bfq.weight": "default 100\n", "io.weight": "default 100\n", "memory.high": "max\n", "memory.low": "0\n", "memory.max": "max\n",
	"memory.min": "0\n", "memory.oom.group": "0\n", "memory.swap.max": "max\n", "pids.max": "max\n", "hugetlb.2MB.max": "max\n", "hugetlb.2MB.rsvd.max": "max\n",
}

// failingCgroup is a cgroup in a directory, in which limits are set; then onSet is called.
type failingCgroup struct {
	cgroups.Manager
	onSet func() error
}

func (c *failingCgroup) Set(r *cgroups.Resources) error {
	return errors.Join(c.Manager.Set(r), c.onSet())
}

func newCgroupDir(t *testing.T, files map[string]string) string {
	t.Helper()
	cgroups.TestMode = true
	t.Cleanup(func() { cgroups.TestMode = false })
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// filesIn returns the limits of a cgroup. The kernel ends each with a new line.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[file.Name()] = strings.TrimSpace(string(text)) + "\n"
	}
	return files
}

// everyLimit is an update of all fields that Update honors.
func everyLimit() *specs.LinuxResources {
	return &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: new(int64(1000)), Reservation: new(int64(500)), Swap: new(int64(3000))},
		CPU: &specs.LinuxCPU{
			Shares: new(uint64(512)), Quota: new(int64(5000)), Period: new(uint64(7000)), Burst: new(uint64(400)), Idle: new(int64(0)),
		},
		Pids:           &specs.LinuxPids{Limit: new(int64(12))},
		BlockIO:        &specs.LinuxBlockIO{Weight: new(uint16(70))},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1 << 21}},
	}
}

// After an update that fails, or whose host has gone, all limits are those of before:
// the first ones of a container are removed, and later ones are what they were.
func TestFailedUpdateRestoresLimits(t *testing.T) {
	limited := maps.Clone(unlimited)
	maps.Copy(limited, map[string]string{
		"cpu.idle": "1\n", "cpu.max": "100 200\n", "cpu.max.burst": "30\n", "io.bfq.weight": "default 200\n", "io.weight": "default 300\n",
		"memory.high": "700\n", "memory.low": "100\n", "memory.max": "800\n", "memory.min": "50\n", "memory.oom.group": "1\n", "memory.swap.max": "60\n",
		"pids.max": "9\n", "hugetlb.2MB.max": "0\n", "hugetlb.2MB.rsvd.max": "0\n",
	})
	named := &specs.LinuxResources{Unified: map[string]string{}}
	for _, l := range limitFiles {
		if l.named {
			named.Unified[l.file] = "42"
		}
	}
	lessSwap := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1))}} // writes memory.swap.max, too
	for name, before := range map[string]map[string]string{"unlimited": unlimited, "limited": limited} {
		for how, update := range map[string]*specs.LinuxResources{"by fields": everyLimit(), "by name": named, "no memory": lessSwap} {
			for _, late := range []bool{false, true} {
				changed, after := failedUpdate(t, before, update, late)
				if name == "limited" && cmp.Equal(before, changed) {
					t.Errorf("%s, %s: nothing was set", name, how)
				}
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("%s, %s, late %v (-before +after):\n%s", name, how, late, diff)
				}
			}
		}
	}
}

// failedUpdate sets limits, which fails after all are set, or is late. It returns what the
// cgroup's files said when they were set, and what they say afterwards.
func failedUpdate(t *testing.T, before map[string]string, update *specs.LinuxResources, late bool) (changed, after map[string]string) {
	t.Helper()
	dir := newCgroupDir(t, before)
	manager, err := fs2.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	errSet := errors.New("not set")
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	c := &Container{id: "c", resources: &cgroups.Resources{SkipDevices: true}, cgroups: &failingCgroup{manager, func() error {
		changed = filesIn(t, dir)
		if late {
			giveUp()
			return nil
		}
		return errSet
	}}}
	merged, err := updated(c.resources, update)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.setLimits(ctx, merged); err == nil || errors.Is(err, errSet) == late {
		t.Error(err)
	}
	return changed, filesIn(t, dir)
}

// What the guest's kernel lacks is not restored, and a limit that another one forbids
// until that is restored is tried again.
func TestRestoreLimits(t *testing.T) {
	saved := []savedLimit{{"burst", "5"}, {"quota", "9"}}
	var written []string
	err := restoreLimits(saved, func(l savedLimit) error {
		written = append(written, l.file)
		if l.file == "burst" && len(written) == 1 {
			return errors.New("it exceeds the quota")
		}
		return nil
	})
	if err != nil || !slices.Equal(written, []string{"burst", "quota", "burst", "quota"}) {
		t.Errorf("%v: %v", written, err)
	}
	dir := newCgroupDir(t, map[string]string{"pids.max": "max\n"})
	limits := &cgroups.Resources{PidsLimit: new(int64(1)), MemorySwap: -1}
	if got, err := saveLimits(dir, limits); err != nil || !slices.Equal(got, []savedLimit{{"pids.max", "max"}}) {
		t.Errorf("saved %v, %v", got, err)
	}
}
