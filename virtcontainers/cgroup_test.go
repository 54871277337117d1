package virtcontainers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// These tests move the test process itself, because it acts as the shim. None
// may run in parallel with another.

// cgroupParent is a parent for the pod's cgroup, used by this test alone; it
// must be gone when the test ends.
func cgroupParent(t *testing.T) string {
	t.Helper()
	parent := fmt.Sprintf("/kbtest-pods-%d-%d", os.Getpid(), time.Now().UnixNano())
	c, err := hostcgroup.New(hostcgroup.Options{Path: parent + "/x", Name: "x"})
	if err == nil {
		err = errors.Join(c.Make(), c.Remove(t.Context()))
	}
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for _, dir := range c.Dirs() {
			if dir = filepath.Dir(dir); !strings.HasSuffix(dir, parent) {
				continue
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	})
	return parent
}

// newCgroupHost is a host with cgroups, and a parent for the pod's.
func newCgroupHost(t *testing.T) (host *fakeguest.Host, parent string) {
	t.Helper()
	host, parent = newHost(t), cgroupParent(t)
	host.CgroupRoot = ""
	return host, parent
}

// inCgroups counts the hierarchies in which a process is in the pod's cgroup,
// in the overhead cgroup, or elsewhere.
func inCgroups(t *testing.T, pid int, parent string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(data)) {
		switch path := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]; path {
		case parent + "/kata_" + sandboxID:
			found["pod"]++
		case "/kata_overhead/" + sandboxID:
			found["overhead"]++
		default:
			found["elsewhere"]++
		}
	}
	return found
}

// cgroupOptions are those of a pod with cgroups. Where an external virtiofsd is
// installed, the pod uses it, because that process must be charged to a cgroup
// too.
func cgroupOptions(o virtcontainers.Observer, parent string, only bool) virtcontainers.Options {
	opts := options(o)
	opts.Config.Hypervisor.VirtioFS.Daemon = findDaemon()
	opts.CgroupsPath, opts.Config.Runtime.SandboxCgroupOnly = parent+"/"+sandboxID, only
	return opts
}

func TestCgroup(t *testing.T) {
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("only=%v", only), func(t *testing.T) {
			host, parent := newCgroupHost(t)
			before := inCgroups(t, os.Getpid(), parent)
			s, err := virtcontainers.New(t.Context(), host.Platform(), cgroupOptions(newObserver(), parent, only))
			if err != nil {
				t.Fatal(err)
			}
			rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
			if err != nil {
				t.Fatal(err)
			}
			checkPlaces(t, rec, parent, only)
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, inCgroups(t, os.Getpid(), parent)); diff != "" {
				t.Errorf("the shim's cgroups, before and after: %s", diff)
			}
			for _, dir := range rec.Cgroups {
				if _, err := os.Stat(dir); err == nil {
					t.Errorf("%s is left", dir)
				}
			}
		})
	}
}

// The shim leaves the pod's cgroups while the machine ends: it does not wait for that.
func TestShimLeavesFirst(t *testing.T) {
	host, parent := newCgroupHost(t)
	self := func() string {
		data, _ := os.ReadFile("/proc/self/cgroup")
		return string(data)
	}
	before, left := self(), false
	s, err := virtcontainers.New(t.Context(), host.Platform(), cgroupOptions(newObserver(), parent, false))
	if err != nil {
		t.Fatal(err)
	}
	if self() == before {
		t.Error("the shim is not in the pod's cgroups")
	}
	host.Monitor.Hook(fake.StepStop, func(context.Context, *fake.VM) error {
		for end := time.Now().Add(3 * time.Second); !left && time.Now().Before(end); time.Sleep(time.Millisecond) {
			left = self() == before
		}
		return nil
	})
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if !left {
		t.Error("the shim was in the pod's cgroups until the machine had ended")
	}
}

// A pod whose engine names no cgroup has a bounded one all the same, even if its
// configuration wants nothing but the engine's.
func TestCgroupWithoutPath(t *testing.T) {
	for _, only := range []bool{false, true} {
		host, parent := newCgroupHost(t)
		before := inCgroups(t, os.Getpid(), parent)
		opts := cgroupOptions(newObserver(), parent, only)
		opts.CgroupsPath = ""
		s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
		if err != nil {
			t.Fatal(err)
		}
		all := besideVM(rec)
		all["machine"] = rec.VM.PID
		for what, pid := range all {
			if at := inCgroups(t, pid, parent); at["overhead"] == 0 || at["elsewhere"] > 1 || len(at) > 2 {
				t.Errorf("only %v: %s is in %v, want it in overhead", only, what, at)
			}
		}
		wantBounds(t, rec.Cgroups)
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(before, inCgroups(t, os.Getpid(), parent)); diff != "" {
			t.Errorf("the shim's cgroups, before and after: %s", diff)
		}
		for _, dir := range rec.Cgroups {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	}
}

// wantBounds fails the test unless cgroups have a pod's bounds, as far as this
// host has the controllers.
func wantBounds(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		for name, most := range map[string]uint64{"memory.limit_in_bytes": 4 << 30, "memory.max": 4 << 30, "pids.max": 8192} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil || n > most {
				t.Errorf("%s of %s is %q, want a bound of at most %d", name, dir, text, most)
			}
		}
	}
}

// shimCgroup makes a cgroup in every hierarchy, as an operator does, and
// removes it at the test's end.
func shimCgroup(t *testing.T) string {
	t.Helper()
	parent := cgroupParent(t)
	c, err := hostcgroup.New(hostcgroup.Options{Path: parent + "/x", Name: "shim", Only: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Make(); err != nil {
		t.Fatal(err)
	}
	return c.Path()
}

// shimIn reports whether a process is in a cgroup of that path in any
// hierarchy.
func shimIn(t *testing.T, pid int, path string) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), ":"+path+"\n")
}

// The shim moves into the cgroup that the engine made for it, whether or not
// the pod has its own, and afterwards back to where it was.
func TestShimCgroup(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("with the pod's own %v", own), func(t *testing.T) {
			host, parent := newCgroupHost(t)
			opts := cgroupOptions(newObserver(), parent, false)
			opts.ShimCgroup = shimCgroup(t)
			if !own {
				opts.CgroupsPath = ""
			}
			s, err := virtcontainers.New(t.Context(), host.Platform(), opts)
			if err != nil {
				t.Fatal(err)
			}
			rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
			if err != nil {
				t.Fatal(err)
			}
			for what, pid := range besideVM(rec) {
				if !shimIn(t, pid, opts.ShimCgroup) {
					t.Errorf("%s is not in %s", what, opts.ShimCgroup)
				}
			}
			if own && (shimIn(t, rec.VM.PID, opts.ShimCgroup) || inCgroups(t, rec.VM.PID, parent)["pod"] == 0) {
				t.Errorf("the machine is in %v", inCgroups(t, rec.VM.PID, parent))
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if shimIn(t, os.Getpid(), opts.ShimCgroup) {
				t.Error("the shim is still there")
			}
		})
	}
}

// A boot that fails moves the shim out of the engine's cgroup too; a cgroup
// that does not exist fails the boot.
func TestShimCgroupFails(t *testing.T) {
	host, parent := newCgroupHost(t)
	opts := cgroupOptions(newObserver(), parent, false)
	opts.ShimCgroup = shimCgroup(t)
	for _, step := range virtcontainers.BootSteps() {
		platform := host.Platform()
		platform.Failpoint = step
		_, err := virtcontainers.New(t.Context(), platform, opts)
		if err == nil || strings.Contains(err.Error(), "undo") {
			t.Errorf("%s: %v", step, err)
		}
		if shimIn(t, os.Getpid(), opts.ShimCgroup) {
			t.Errorf("%s: the shim is still there", step)
		}
	}
	opts.ShimCgroup = parent + "/nowhere"
	_, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "ShimCgroup") {
		t.Errorf("one that is not there: %v", err)
	}
}

// besideVM returns the pod's processes other than its machine, by name.
func besideVM(rec *persist.Record) map[string]int {
	pids := map[string]int{"shim": os.Getpid()}
	if rec.FSDaemon.PID != 0 {
		pids["virtiofsd"] = rec.FSDaemon.PID
	}
	return pids
}

// checkPlaces checks in which cgroups a pod's processes are.
func checkPlaces(t *testing.T, rec *persist.Record, parent string, only bool) {
	t.Helper()
	if len(rec.Cgroups) == 0 {
		t.Error("no cgroup is in the record")
	}
	rest := "overhead"
	if only {
		rest = "pod"
	}
	for what, pid := range besideVM(rec) {
		if at := inCgroups(t, pid, parent); at[rest] == 0 || at["elsewhere"] > 1 || len(at) > 2 {
			t.Errorf("%s is in %v, want it in %s", what, at, rest)
		}
	}
	if at := inCgroups(t, rec.VM.PID, parent); at["pod"] == 0 || at["elsewhere"] > 1 {
		t.Errorf("the machine is in %v", at)
	}
}

// A guest boots in the overhead cgroup for CPU time, under the default weight,
// and moves to the pod's once its agent has answered.
func TestBootIsNotWeighed(t *testing.T) {
	host, parent := newCgroupHost(t)
	vcpu := sleepers(t, 1)[0]
	if _, v1 := cgroupOf(t, vcpu, "cpu"); !v1 {
		t.Skip("with cgroup v2 a process has one cgroup for all")
	}
	host.Monitor.Hook(fake.StepAttach, func(_ context.Context, vm *fake.VM) error {
		vm.SetVCPUThreads(vcpu)
		return nil
	})
	before := "not looked at"
	host.Monitor.Hook(fake.StepResume, func(context.Context, *fake.VM) error {
		before, _ = cgroupOf(t, vcpu, "cpu")
		return nil
	})
	s, err := virtcontainers.New(t.Context(), host.Platform(), cgroupOptions(newObserver(), parent, false))
	if err != nil {
		t.Fatal(err)
	}
	if before == "not looked at" || strings.HasPrefix(before, parent) {
		t.Errorf("the guest boots while its vCPU is in %s", before)
	}
	if now, _ := cgroupOf(t, vcpu, "cpu"); now != parent+"/kata_"+sandboxID {
		t.Errorf("after that its vCPU is in %s", now)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// cgroupOf is a process's cgroup in the v1 hierarchy with that controller.
func cgroupOf(t *testing.T, pid int, controller string) (string, bool) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// Where no cgroup can be made the pod runs, unless it must be in one.
func TestWithoutCgroup(t *testing.T) {
	for _, tt := range []struct {
		name    string
		arrange func(*fakeguest.Host, *virtcontainers.Platform)
		below   string // the parent
		want    string
	}{
		{name: "no cgroups", want: "cgroup: no cgroup file system",
			arrange: func(_ *fakeguest.Host, p *virtcontainers.Platform) { p.CgroupRoot = p.RunDir }},
		{name: "no vCPUs", want: "charge: find vCPU threads",
			arrange: func(h *fakeguest.Host, _ *virtcontainers.Platform) { h.Monitor.Fail(fake.StepVCPUThreads, errInjected) }},
		{name: "a name that is too long", want: "cgroup: make cgroup", below: "/in/" + strings.Repeat("x", 4096),
			arrange: func(*fakeguest.Host, *virtcontainers.Platform) {}},
		{name: "a path that is none", want: "cgroup: cgroups path", below: "\x00",
			arrange: func(*fakeguest.Host, *virtcontainers.Platform) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, parent := newCgroupHost(t)
			platform := host.Platform()
			tt.arrange(host, &platform)
			s, err := virtcontainers.New(t.Context(), platform, cgroupOptions(newObserver(), parent+tt.below, false))
			if err == nil {
				err = s.Stop(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			_, err = virtcontainers.New(t.Context(), platform, cgroupOptions(newObserver(), parent+tt.below, true))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("a pod that must be in its cgroup: %v", err)
			}
		})
	}
}

// A boot that fails moves the shim back, at whichever step it fails.
func TestCgroupFailpoints(t *testing.T) {
	host, parent := newCgroupHost(t)
	before := inCgroups(t, os.Getpid(), parent)
	for _, step := range virtcontainers.BootSteps() {
		platform := host.Platform()
		platform.Failpoint = step
		_, err := virtcontainers.New(t.Context(), platform, cgroupOptions(newObserver(), parent, false))
		if err == nil || strings.Contains(err.Error(), "undo") {
			t.Errorf("%s: %v", step, err)
		}
		if diff := cmp.Diff(before, inCgroups(t, os.Getpid(), parent)); diff != "" {
			t.Errorf("%s: the shim's cgroups, before and after: %s", step, diff)
		}
	}
}

// Recovery kills the processes that a killed shim left in its cgroups, and
// removes the cgroups.
func TestRecoverCgroups(t *testing.T) {
	host, parent := newCgroupHost(t)
	processes := deadPod(t, host)
	c, err := hostcgroup.New(hostcgroup.Options{Path: parent + "/" + sandboxID, Name: sandboxID})
	if err == nil {
		err = c.Make()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if err := c.Add(p.PID); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := persist.Load(host.Platform().StateDir(), sandboxID)
	if err != nil {
		t.Fatal(err)
	}
	store, err := persist.Create(host.Platform().StateDir(), persist.Owner{}, sandboxID)
	if err == nil {
		err = store.Update(func(r *persist.Record) { *r, r.Cgroups = *rec, c.Dirs() })
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := virtcontainers.Recover(host.Platform(), sandboxID, sandboxID, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range c.Dirs() {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}
