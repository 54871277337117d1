package containerd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// on returns an idle container with a cpuset and CPU shares.
func on(name, cpus string, shares uint64) harness.ContainerConfig {
	return harness.ContainerConfig{
		Name: name, Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{withLimits(func(r *specs.LinuxResources) { r.CPU = &specs.LinuxCPU{Cpus: cpus, Shares: &shares} })},
	}
}

// allowedCPUs is the list of CPUs that a thread may run on.
func allowedCPUs(t *testing.T, id int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	t.Fatalf("/proc/%d/status has no list of CPUs", id)
	return ""
}

// vcpuPlaces lists where the vCPUs of the daemon's only pod may run, in the
// order of their numbers.
func vcpuPlaces(t *testing.T, d *harness.Daemon) []string {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	places := map[int]string{}
	for _, p := range procs {
		for _, id := range vcpusOf(t, p) {
			name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", id))
			if err != nil {
				continue // it has ended
			}
			var n int
			if _, err := fmt.Sscanf(string(name), "CPU %d/", &n); err != nil {
				t.Fatalf("a vCPU's thread is called %q: %v", name, err)
			}
			places[n] = allowedCPUs(t, id)
		}
	}
	var found []string
	for _, n := range slices.Sorted(maps.Keys(places)) {
		found = append(found, places[n])
	}
	return found
}

// podPlace returns a pod's cgroup's CPUs and shares, or weight.
func podPlace(t *testing.T, path string) string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range cgroupDirs(t, path) {
		for _, name := range []string{"cpuset.cpus", "cpu.shares", "cpu.weight"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				found[name] = strings.TrimSpace(string(data))
			}
		}
	}
	return strings.TrimSpace(found["cpuset.cpus"] + " " + found["cpu.shares"] + found["cpu.weight"])
}

// needTwoCPUs skips unless exactly CPUs 0 and 1 exist: on a host with more CPUs
// their number would differ from the vCPUs'.
func needTwoCPUs(t *testing.T) {
	t.Helper()
	if list := allowedCPUs(t, os.Getpid()); list != "0-1" {
		t.Skipf("needs CPUs 0-1, has %s", list)
	}
}

// A pod's cgroup has the combined CPUs and shares of its containers, as they
// are added, changed and removed, and each vCPU has one CPU while their numbers
// are equal.
func TestPodPlaceAndPinning(t *testing.T) {
	needVM(t)
	needTwoCPUs(t)
	configure := func(o *harness.Options) {
		// The machine has one default vCPU, and at most two, each with a thread.
		o.Kata.Extra = "default_maxvcpus = 2\ntcg_thread = \"multi\"\n"
	}
	newestOwn(t, configure, playPlaces)
}

func playPlaces(ctx context.Context, t *testing.T, d *harness.Daemon) {
	parent, mark := "/"+d.NewID("pods"), d.LogSize()
	pod, err := d.NewPod(ctx, "pinned", oci.WithCgroup(parent+"/c"),
		oci.WithAnnotations(map[string]string{"io.katacontainers.enable_vcpus_pinning": "true"}),
		withLimits(func(r *specs.LinuxResources) {
			shares := uint64(2)
			r.CPU = &specs.LinuxCPU{Shares: &shares}
		}))
	if err != nil {
		t.Fatal(err)
	}
	gone := false
	t.Cleanup(func() {
		if !gone {
			removed(t, "pod", pod.Remove)
		}
	})
	path := parent + "/kata_" + d.HostName(pod.Sandbox.Box.ID())
	is := func(what, place string, vcpus ...string) {
		t.Helper()
		awaitPlaces(t, what, place, vcpus, func() (string, []string) { return podPlace(t, path), vcpuPlaces(t, d) })
	}
	booted := []string{"0-1"}
	if strings.Contains(d.LogSince(mark, 1000), "accel=tcg") {
		booted = append(booted, "0-1") // all threads exist from the start (hypervisor/qemu, SetVCPUs)
	}
	is("a pause", v2Shares("0-1 1024", "", "100"), booted...)
	add(ctx, t, pod, on("first", "0", 100))
	is("a second vCPU for one CPU", v2Shares("0 100", "0", "17"), "0", "0")
	second := add(ctx, t, pod, on("second", "1", 924))
	is("as many of both", v2Shares("0-1 1024", "0-1", "100"), "0", "1")
	setCPUs(ctx, t, second, "0")
	is("an update", v2Shares("0 1024", "0", "100"), "0", "0")
	setCPUs(ctx, t, second, "1")
	is("another", v2Shares("0-1 1024", "0-1", "100"), "0", "1")
	if _, err := second.KillAndWait(ctx); err != nil {
		t.Fatal(err)
	}
	is("one has ended", v2Shares("0 100", "0", "17"), "0", "0")
	gone = true
	removed(t, "pod", pod.Remove)
	awaitNoCgroup(t, parent)
	awaitNoCgroup(t, "/kata_overhead/"+d.HostName(pod.Sandbox.Box.ID()))
}

// v2Shares selects the expected place of a pod: v1's, or the set and the weight
// of v2.
func v2Shares(v1, set, weight string) string {
	if hasV2() {
		return strings.TrimSpace(set + " " + weight)
	}
	return v1
}

// awaitPlaces waits until a pod's place and its vCPUs' are as wanted: they are
// updated after a container's exit was reported.
func awaitPlaces(t *testing.T, what, place string, vcpus []string, now func() (string, []string)) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		gotPlace, gotVCPUs := now()
		diff := cmp.Diff(append([]string{place}, vcpus...), append([]string{gotPlace}, gotVCPUs...))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: the pod's place and the vCPUs' (-want +got):\n%s", what, diff)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func setCPUs(ctx context.Context, t *testing.T, c *harness.Container, cpus string) {
	t.Helper()
	if err := c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: cpus}})); err != nil {
		t.Error(err)
	}
}

// An invalid cpuset fails the create, and so does one that the host lacks if
// the pod must be in its cgroup.
func TestCPUsThatCannotBe(t *testing.T) {
	needVM(t)
	configure := func(o *harness.Options) { o.Kata.Extra = "[runtime]\nsandbox_cgroup_only = true\n" }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		parent := "/" + d.NewID("pods")
		pod, err := d.NewPod(ctx, "cpus", oci.WithCgroup(parent+"/c"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			removed(t, "pod", pod.Remove)
			awaitNoCgroup(t, parent)
		})
		for cpus, want := range map[string]string{"0-x": `cpuset "0-x"`, "8191": `set cpuset.cpus to "8191"`} {
			if _, err := pod.Add(ctx, on("bad", cpus, 2)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a container on CPUs %s: %v, want an error with %s", cpus, err, want)
			}
		}
		add(ctx, t, pod, on("good", "0", 2))
	})
}
