package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// cgroupDirs finds a cgroup's directories in all hierarchies, v1's and v2's.
func cgroupDirs(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, err := filepath.Glob(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// awaitNoCgroup waits until a cgroup is gone from all hierarchies: a shim
// removes it after its last answer.
func awaitNoCgroup(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for left := cgroupDirs(t, path); len(left) > 0; left = cgroupDirs(t, path) {
		if time.Now().After(deadline) {
			t.Errorf("left: %v", left)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// placeOf returns in which of a pod's cgroups a process or thread is for one
// controller; "v2" is cgroup v2's only hierarchy.
func placeOf(t *testing.T, id int, controller string, names map[string]string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", id))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // cgroups(7)
		if fields[1] == "" {
			fields[1] = "v2"
		}
		for name := range strings.SplitSeq(fields[1], ",") {
			if name != controller {
				continue
			}
			if place, ok := names[fields[2]]; ok {
				return place
			}
			return fields[2]
		}
	}
	return "no hierarchy"
}

// hasV2 reports whether the host's controllers are cgroup v2's.
func hasV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// places returns where each part of the daemon's only pod is.
func places(t *testing.T, d *harness.Daemon, names map[string]string) map[string]string {
	t.Helper()
	procs, err := d.Processes()
	if err != nil {
		t.Fatal(err)
	}
	controllers := []string{"cpu", "memory", "pids"}
	if hasV2() {
		controllers = []string{"v2"}
	}
	found := map[string]string{}
	for _, p := range procs {
		for _, c := range controllers {
			found[p.Kind()+" "+c] = placeOf(t, p.PID, c, names)
			for _, thread := range vcpusOf(t, p) {
				found["vCPU "+c] = placeOf(t, thread, c, names)
			}
		}
	}
	return found
}

// vcpusOf finds the threads that QEMU names as vCPUs.
func vcpusOf(t *testing.T, p harness.Proc) []int {
	t.Helper()
	if p.Kind() != harness.KindVMM {
		return nil
	}
	comms, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for _, comm := range comms {
		name, err := os.ReadFile(comm)
		if err != nil || !strings.Contains(string(name), "CPU") {
			continue
		}
		var id int
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(comm)), &id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Errorf("%v has no thread for a vCPU", p)
	}
	return ids
}

// standInMemory is the part of a pod that is in its container's cgroup.
const standInMemory = harness.KindStandIn + " memory"

// needNoPool skips a test that takes all processes of a daemon for its pods'.
func needNoPool(t *testing.T) {
	t.Helper()
	if os.Getenv(harness.EnvPool) != "" {
		t.Skip("there are spares and their makers, too; TestPool has the places of a claimed one")
	}
}

// wantPlaces returns where the parts of a pod belong.
func wantPlaces(only bool) map[string]string {
	want := map[string]string{}
	parts := []string{harness.KindShim, harness.KindStandIn, harness.KindVMM, "vCPU"}
	if harness.ExternalVirtiofsd() != "" {
		parts = append(parts, harness.KindVirtiofsd)
	}
	for _, part := range parts {
		for _, c := range []string{"cpu", "memory", "pids"} {
			want[part+" "+c] = map[bool]string{true: "pod", false: "overhead"}[only]
		}
	}
	// The machine's memory is charged to the pod, and its vCPUs' time.
	want[harness.KindVMM+" memory"], want["vCPU memory"], want["vCPU cpu"] = "pod", "pod", "pod"
	// Engines look up a container's limit from its pid.
	want[standInMemory] = "container"
	if !hasV2() {
		return want
	}
	v2 := map[string]string{}
	for _, part := range parts {
		v2[part+" v2"] = want[part+" memory"]
	}
	return v2
}

// A pod's processes are charged where the configuration says, and the cgroups
// are removed with the pod, even if its shim was killed.
func TestPodCgroup(t *testing.T) {
	needVM(t)
	needNoPool(t)
	for _, only := range []bool{false, true} {
		t.Run(fmt.Sprintf("only=%v", only), func(t *testing.T) {
			configure := func(o *harness.Options) {
				o.Kata.Extra = fmt.Sprintf("[runtime]\nsandbox_cgroup_only = %v\n", only)
			}
			eachOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				for _, killed := range []bool{false, true} {
					checkPodCgroup(ctx, t, d, only, killed)
				}
			})
		})
	}
}

func checkPodCgroup(ctx context.Context, t *testing.T, d *harness.Daemon, only, killed bool) {
	t.Helper()
	top := "/" + d.NewID("pods")
	parent, named, path := top+"/in", top+"/in/whatever", top+"/in/whatever"
	if killed { // and named as systemd's driver does
		slice := strings.ReplaceAll(top[1:], "-", "_")
		top = "/" + slice + ".slice"
		parent, named = top+"/"+slice+"-in.slice", slice+"-in.slice:cri-containerd:whatever"
		path = parent + "/cri-containerd-whatever.scope"
	}
	recorder := d.Record(ctx)
	defer recorder.Close()
	pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(named))
	if err != nil {
		t.Fatal(err)
	}
	id := pod.Sandbox.Box.ID()
	name := d.HostName(id)
	names := map[string]string{parent + "/kata_" + name: "pod", "/kata_overhead/" + name: "overhead", path: "container"}
	if diff := cmp.Diff(wantPlaces(only), places(t, d, names)); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	helpers := map[bool]string{true: parent + "/kata_" + name, false: "/kata_overhead/" + name}[only]
	wantBounded(t, helpers)
	wantBounded(t, parent+"/kata_"+name)
	if killed {
		killOne(t, d, harness.KindShim)
		if _, err := recorder.Await(ctx, id, "delete"); err != nil {
			t.Error(err)
		}
	}
	removed(t, "pod", pod.Remove)
	awaitNoCgroup(t, top)
	awaitNoCgroup(t, "/kata_overhead/"+name)
}

// A pod whose engine names no cgroup has a bounded one, and leaves none.
func TestPodCgroupWithoutPath(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(""))
		if err != nil {
			t.Fatal(err)
		}
		path := "/kata_overhead/" + d.HostName(pod.Sandbox.Box.ID())
		for part, place := range places(t, d, map[string]string{path: "overhead"}) {
			if place != "overhead" {
				t.Errorf("%s is in %s", part, place)
			}
		}
		wantBounded(t, path)
		removed(t, "pod", pod.Remove)
		awaitNoCgroup(t, path)
	})
}

// wantBounded fails the test unless a cgroup has a pod's bounds.
func wantBounded(t *testing.T, path string) {
	t.Helper()
	memory, pids := "/sys/fs/cgroup/memory"+path+"/memory.limit_in_bytes", "/sys/fs/cgroup/pids"+path+"/pids.max"
	if hasV2() {
		memory, pids = "/sys/fs/cgroup"+path+"/memory.max", "/sys/fs/cgroup"+path+"/pids.max"
	}
	for file, most := range map[string]int{memory: 8 << 30, pids: 8192} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || n > most {
			t.Errorf("%s is %q, want a bound of at most %d", file, text, most)
		}
	}
}

// A pod whose memory limit has no room for its VM is not charged for the VM's
// memory, and so not killed for it.
func TestPodCgroupWithoutRoom(t *testing.T) {
	needVM(t)
	needNoPool(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		parent := "/" + d.NewID("pods")
		t.Cleanup(func() { removeCgroup(t, parent) })
		limitMemory(t, parent, 64<<20)
		pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(parent+"/c"))
		if err != nil {
			t.Fatal(err)
		}
		name := d.HostName(pod.Sandbox.Box.ID())
		t.Cleanup(func() {
			removed(t, "pod", pod.Remove)
			awaitNoCgroup(t, parent+"/kata_"+name)
		})
		names := map[string]string{parent + "/kata_" + name: "pod", "/kata_overhead/" + name: "overhead", parent + "/c": "container"}
		want := wantPlaces(false)
		for part := range want {
			if want[part] == "container" {
				continue
			}
			if strings.HasSuffix(part, " memory") || hasV2() {
				want[part] = "overhead"
			}
		}
		if diff := cmp.Diff(want, places(t, d, names)); diff != "" {
			t.Errorf("places (-want +got):\n%s", diff)
		}
	})
}

// limitMemory makes a cgroup on the host, as the kubelet does for a pod, with a
// limit in bytes.
func limitMemory(t *testing.T, path string, limit int) {
	t.Helper()
	dir, file := "/sys/fs/cgroup/memory"+path, "memory.limit_in_bytes"
	if hasV2() {
		dir, file = "/sys/fs/cgroup"+path, "memory.max"
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0); err != nil {
		t.Fatal(err)
	}
}

// removeCgroup removes a cgroup that the test made. It must be empty, and still
// exist.
func removeCgroup(t *testing.T, path string) {
	t.Helper()
	dirs := cgroupDirs(t, path)
	if len(dirs) != 1 {
		t.Errorf("cgroup %s is at %v, want the test's own alone", path, dirs)
	}
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
}

// The CPU time of a busy guest is charged to the pod's cgroup and its parent.
func TestPodCgroupCountsTheGuest(t *testing.T) {
	needVM(t)
	each(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		parent := "/" + d.NewID("pods")
		pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(parent+"/c"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "pod", pod.Remove) })
		before := cpuTime(t, parent)
		c := add(ctx, t, pod, harness.ContainerConfig{Args: script("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")})
		wantCode(ctx, t, &c.Process, 0)
		if after := cpuTime(t, parent); after <= before {
			t.Errorf("the parent's CPU time is %d after the guest's work, %d before", after, before)
		}
	})
}

// cpuTime returns a cgroup's CPU time, including its children's, in the unit of
// the host's cgroup version.
func cpuTime(t *testing.T, path string) (spent uint64) {
	t.Helper()
	for _, dir := range cgroupDirs(t, path) {
		for file, format := range map[string]string{"cpuacct.usage": "%d", "cpu.stat": "usage_usec %d"} {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if n, _ := fmt.Sscanf(string(data), format, &spent); n == 1 {
				return spent
			}
		}
	}
	t.Fatalf("no CPU time of cgroup %s is found", path)
	return 0
}
