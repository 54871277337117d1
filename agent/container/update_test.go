package container

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/containerd/errdefs"
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

// recordedCgroup is a cgroup whose CPU quotas are recorded.
type recordedCgroup struct {
	cgroups.Manager
	dir   string
	set   []string // in cpu.max
	onSet func()
}

func (c *recordedCgroup) Path(string) string { return c.dir }

func (c *recordedCgroup) Set(r *cgroups.Resources) error {
	quota := strconv.FormatInt(r.CpuQuota, 10)
	c.set = append(c.set, quota)
	c.onSet()
	return os.WriteFile(filepath.Join(c.dir, "cpu.max"), []byte(quota), 0o600)
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

// An update that takes effect when the host does not wait for it any more is undone.
func TestUpdateForNoHost(t *testing.T) {
	init, err := openInit(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = init.close(passBarriers) }()
	for name, test := range map[string]struct {
		early bool
		had   string
		set   []string
	}{
		"while they are set":   {false, "1000 100000", []string{"2000"}},
		"while a first one is": {false, "max 100000", []string{"2000"}},
		"before":               {true, "1000 100000", nil},
	} {
		ctx, giveUp := context.WithCancel(t.Context())
		cgroup := &recordedCgroup{dir: newCgroupDir(t, map[string]string{"cpu.max": test.had}), onSet: giveUp}
		before := &cgroups.Resources{CpuQuota: 1000}
		c := &Container{id: "c", init: init, cgroups: cgroup, resources: before}
		if test.early {
			giveUp()
		}
		quota := int64(2000)
		err := c.Update(ctx, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota}})
		if !errors.Is(err, context.Canceled) || !slices.Equal(cgroup.set, test.set) || c.resources != before {
			t.Errorf("%s: %v, set %v, remembered %v", name, err, cgroup.set, c.resources.CpuQuota)
		}
		if got := filesIn(t, cgroup.dir)["cpu.max"]; got != test.had+"\n" {
			t.Errorf("%s: in force is %q, want %q", name, got, test.had)
		}
		giveUp()
	}
}
