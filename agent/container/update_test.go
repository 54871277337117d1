package container

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// after returns a container's limits after updates of its memory, as engines send
// them.
func after(t *testing.T, updates ...string) *cgroups.Resources {
	t.Helper()
	r := &cgroups.Resources{}
	for _, text := range updates {
		var res specs.LinuxResources
		if err := json.Unmarshal([]byte(`{"memory":`+text+`}`), &res); err != nil {
			t.Fatal(err)
		}
		next, err := updated(r, &res)
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	return r
}

// A limit of memory can be raised above a swap limit that an earlier update has
// lifted, as with runc.
func TestSwapIsForgotten(t *testing.T) {
	const first, raised = `{"limit":100,"swap":200}`, `{"limit":300}`
	for name, test := range map[string]struct {
		updates   []string
		swap      int64 // of the cgroup
		forbidden bool
	}{
		"raised alone":                     {[]string{first, raised}, 0, true},
		"raised with its swap":             {[]string{first, `{"limit":300,"swap":400}`}, 100, false},
		"lifted":                           {[]string{first, `{"limit":-1}`}, -1, false},
		"lifted, then raised":              {[]string{first, `{"limit":-1}`, raised}, 0, false},
		"lifted with a swap, then raised":  {[]string{first, `{"limit":-1,"swap":250}`, raised}, 0, true},
		"swap named as none":               {[]string{first, `{"limit":300,"swap":0}`}, 0, false},
		"another limit keeps what was set": {[]string{first, `{"reservation":50}`}, 100, false},
	} {
		r := after(t, test.updates...)
		swap, err := cgroups.ConvertMemorySwapToCgroupV2Value(r.MemorySwap, r.Memory)
		if (err != nil) != test.forbidden || swap != test.swap {
			t.Errorf("%s: memory %d and swap %d: %d for the cgroup, error %v; want %d, error %v", name, r.Memory, r.MemorySwap, swap, err, test.swap, test.forbidden)
		}
	}
}

// Only an update that says so is refused for what the container uses, as with runc.
func TestCheckBeforeUpdateIsOfOneUpdate(t *testing.T) {
	const checked = `{"limit":100,"checkBeforeUpdate":true}`
	for name, test := range map[string]struct {
		updates []string
		want    bool
	}{
		"said":             {[]string{checked}, true},
		"said before":      {[]string{checked, `{"limit":50}`}, false},
		"said not to be":   {[]string{checked, `{"limit":50,"checkBeforeUpdate":false}`}, false},
		"said in the last": {[]string{`{"limit":100}`, checked}, true},
	} {
		if got := after(t, test.updates...).MemoryCheckBeforeUpdate; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// recordedCgroup is a cgroup whose limits are recorded.
type recordedCgroup struct {
	cgroups.Manager
	dir   string
	set   []int64 // its CPU quotas
	onSet func()
}

func (c *recordedCgroup) Path(string) string { return c.dir }

func (c *recordedCgroup) Set(r *cgroups.Resources) error {
	c.set = append(c.set, r.CpuQuota)
	c.onSet()
	return nil
}

// endingCgroup is the cgroup of a container that ends before its use is read.
type endingCgroup struct {
	cgroups.Manager
	end func()
}

func (c *endingCgroup) Path(string) string {
	c.end()
	return "/gone"
}

// An update of a container that ends meanwhile says so, not that a file is missing.
func TestUpdateWhileItEnds(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	init, err := openInit(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = init.close(passBarriers) }()
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	c := &Container{id: "c", init: init, cgroups: &endingCgroup{end: end}, resources: &cgroups.Resources{}}
	limit := int64(1 << 20)
	if err := c.Update(t.Context(), &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("got %v, want that it does not run", err)
	}
}

// A first limit is undone by none, and what was set before by what it was.
func TestLifted(t *testing.T) {
	limits := &cgroups.Resources{Memory: 5, MemorySwap: 6, CpuQuota: 7, PidsLimit: new(int64(8)), CpuWeight: 9, MemoryReservation: 10}
	got := lifted(&cgroups.Resources{}, limits)
	want := &cgroups.Resources{Memory: -1, MemorySwap: -1, CpuQuota: -1, PidsLimit: new(int64(-1)), CpuWeight: 100, Unified: map[string]string{"memory.low": "0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(limits, lifted(limits, limits)); diff != "" {
		t.Error(diff)
	}
}

// An update that takes effect when the host does not wait for it any more is undone.
func TestUpdateForNoHost(t *testing.T) {
	init, err := openInit(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = init.close(passBarriers) }()
	for name, test := range map[string]struct {
		early bool
		had   int64
		set   []int64
	}{
		"while they are set":   {false, 1000, []int64{2000, 1000}},
		"while a first one is": {false, 0, []int64{2000, -1}},
		"before":               {true, 1000, nil},
	} {
		ctx, giveUp := context.WithCancel(t.Context())
		cgroup := &recordedCgroup{dir: t.TempDir(), onSet: giveUp}
		before := &cgroups.Resources{CpuQuota: test.had}
		c := &Container{id: "c", init: init, cgroups: cgroup, resources: before}
		if test.early {
			giveUp()
		}
		quota := int64(2000)
		err := c.Update(ctx, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota}})
		if !errors.Is(err, context.Canceled) || !slices.Equal(cgroup.set, test.set) || c.resources != before {
			t.Errorf("%s: %v, set %v, remembered %v", name, err, cgroup.set, c.resources.CpuQuota)
		}
		giveUp()
	}
}
