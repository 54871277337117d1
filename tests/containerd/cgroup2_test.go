package containerd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// v2Script runs a test binary where all controllers are cgroup v2's: the
// container's processes first leave the root of its cgroup namespace, because a
// cgroup with processes cannot enable controllers for its children (the
// kernel's Documentation/admin-guide/cgroup-v2.rst, "No Internal Process
// Constraint").
const v2Script = `set -e
mount -t cgroup2 none /sys/fs/cgroup
cd /sys/fs/cgroup
mkdir init
echo 0 > init/cgroup.procs
[ -z "$(cat cgroup.procs)" ]
echo +cpu +cpuset +memory +io +pids > cgroup.subtree_control
cd /tests
exec ./hostcgroup.test -test.v`

// The host's cgroups are tested in the hierarchies that the host has. A guest
// has v2 with all controllers, so the same tests run there.
func TestHostCgroupsWithV2(t *testing.T) {
	needVM(t)
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-o", filepath.Join(dir, "hostcgroup.test"),
		"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c, code, err := d.Run(ctx, harness.ContainerConfig{
			Name: "v2", Args: script(v2Script),
			Spec: []oci.SpecOpts{oci.WithPrivileged, oci.WithMounts([]specs.Mount{
				{Destination: "/tests", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}},
				{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"},
			}), withLimits(func(r *specs.LinuxResources) {
				quota := int64(100_000) // a CPU beside the machine's own
				r.CPU = &specs.LinuxCPU{Quota: &quota}
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		out := c.Out.String()
		if code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, out, c.Err.String())
		}
		for _, test := range []string{"TestOverhead/v2", "TestOnly/v2", "TestNoRoomForVM/v2", "TestSetPlace/v2", "TestRelease/v2", "TestRegain", "TestMakeTurnsOnAbove"} {
			if !strings.Contains(out, "--- PASS: "+test+" ") {
				t.Errorf("%s has not passed:\n%s", test, strings.TrimSpace(out))
			}
		}
	})
}

// A pod's bounds come back after its cgroup has lost its controllers, as below
// systemd's slices at each daemon-reload.
func TestPodCgroupRegainsControllers(t *testing.T) {
	needVM(t)
	if !hasV2() {
		t.Skip("with v1 no other program can turn off controllers")
	}
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		top := "/" + d.NewID("slice")
		pod, err := d.NewPod(ctx, "pod", oci.WithCgroup(top+"/in/c"))
		if err != nil {
			t.Fatal(err)
		}
		own := top + "/in/kata_" + d.HostName(pod.Sandbox.Box.ID())
		wantBounded(t, own)
		mark := d.LogSize()
		for _, controller := range []string{"memory", "pids", "cpu"} {
			file := filepath.Join("/sys/fs/cgroup", top, "in/cgroup.subtree_control")
			if err := os.WriteFile(file, []byte("-"+controller), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", own, "memory.max")); err == nil {
			t.Error("the pod's cgroup still has its bound")
		}
		awaitLog(ctx, t, d, mark, "controllers of the pod's cgroup on the host were turned off", "cpu", "memory", "pids")
		awaitBounded(t, own)
		removed(t, "pod", pod.Remove)
		awaitNoCgroup(t, top)
	})
}

// awaitBounded waits until a cgroup has bounds: they are set after the log's line.
func awaitBounded(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.max"))
		if err == nil && strings.TrimSpace(string(text)) != "max" {
			break
		}
	}
	wantBounded(t, path)
}
