package containerd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		for _, test := range []string{"TestOverhead/v2", "TestOnly/v2", "TestNoRoomForVM/v2", "TestSetPlace/v2", "TestRelease/v2", "TestRegain"} {
			if !strings.Contains(out, "--- PASS: "+test+" ") {
				t.Errorf("%s has not passed:\n%s", test, strings.TrimSpace(out))
			}
		}
	})
}
