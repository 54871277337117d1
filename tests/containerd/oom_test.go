package containerd

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// Only the process that exceeds its container's limit is killed: neither its
// pod's other containers nor its machine are affected.
func TestHogIsKilledAlone(t *testing.T) {
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newPod(ctx, t, d)
		other := idle(ctx, t, pod)
		greedy := add(ctx, t, pod, harness.ContainerConfig{
			Name: "greedy", Args: script("sleep 1; exec " + strings.Join(hog, " ")), // see playOOM
			Spec: []oci.SpecOpts{withMemory(32 * mib)},
		})
		wantCode(ctx, t, &greedy.Process, 137)
		if _, err := recorder.Await(ctx, greedy.Box.ID(), "oom"); err != nil {
			t.Error(err)
		}
		if out := execOut(ctx, t, other, harness.ExecConfig{Args: []string{"echo", "here"}}); out != "here\n" {
			t.Errorf("the other container says %q", out)
		}
		for _, e := range recorder.Of(other.Box.ID()) {
			if e.Topic == "oom" || e.Topic == "exit" && e.Exec == other.Box.ID() {
				t.Errorf("the other container had the event %s", e)
			}
		}
	})
}

// With memory.oom.group, which the kubelet sets on hosts with cgroup v2, all
// processes of a container that uses too much are killed; without it the greedy one
// alone. Either is reported.
func TestOOMKillsTheGroup(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		recorder := d.Record(ctx)
		defer recorder.Close()
		pod := newPod(ctx, t, d)
		for group, want := range map[string]uint32{"1": 137, "0": 7} {
			c := add(ctx, t, pod, harness.ContainerConfig{
				Name: "group" + group, Args: script("tail -c 200m /dev/zero & wait; exit 7"),
				Spec: []oci.SpecOpts{withMemory(48 * mib), withLimits(func(r *specs.LinuxResources) {
					r.Unified = map[string]string{"memory.oom.group": group}
				})},
			})
			wantCode(ctx, t, &c.Process, want)
			if _, err := recorder.Await(ctx, c.Box.ID(), "oom"); err != nil {
				t.Errorf("memory.oom.group %s: %v", group, err)
			}
		}
	})
}
