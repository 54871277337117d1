package containerd

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// A machine that is sized once has what CRI says of the pod, and keeps it.
func TestStaticSizing(t *testing.T) {
	needVM(t)
	configure := func(o *harness.Options) {
		o.Kata.Extra = "[runtime]\nstatic_sandbox_resource_mgmt = true\n"
	}
	eachOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod, err := d.NewPod(ctx, "sized", oci.WithAnnotations(map[string]string{
			"io.kubernetes.cri.sandbox-cpu-quota": "50000", "io.kubernetes.cri.sandbox-cpu-period": "100000",
			"io.kubernetes.cri.sandbox-memory": strconv.Itoa(100 * mib),
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, "pod", pod.Remove) })
		c := add(ctx, t, pod, limited("limited", 50_000, 100*mib, 50))
		wantGuest(ctx, t, c, 2, 384)
		wantLimits(ctx, t, c, "50000 100000", 100*mib, 50)
		quota, period, memory, pids := int64(150_000), uint64(100_000), int64(300*mib), int64(60)
		if err := c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
			Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}, Pids: &specs.LinuxPids{Limit: &pids},
		})); err != nil {
			t.Error(err)
		}
		wantGuest(ctx, t, c, 2, 384)
		wantLimits(ctx, t, c, "150000 100000", 300*mib, 60)
	})
}

// limited is an idle container with limits: a quota of 100 ms, bytes, processes.
func limited(name string, quota, memory, pids int64) harness.ContainerConfig {
	return harness.ContainerConfig{
		Name: name, Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{withCgroups, withMemory(memory), withLimits(func(r *specs.LinuxResources) {
			period := uint64(100_000)
			r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
			r.Pids = &specs.LinuxPids{Limit: &pids}
		})},
	}
}

// wantGuest fails the test unless the guest has so many CPUs and so much memory,
// of which its kernel keeps some for itself.
func wantGuest(ctx context.Context, t *testing.T, c *harness.Container, cpus, memoryMiB int) {
	t.Helper()
	out := strings.Fields(execOut(ctx, t, c, harness.ExecConfig{Args: script("nproc; grep MemTotal /proc/meminfo")}))
	if len(out) != 4 {
		t.Fatalf("the guest says %q", out)
	}
	const own = 60
	kib, err := strconv.Atoi(out[2])
	if err != nil || kib>>10 <= memoryMiB-own || kib>>10 > memoryMiB || out[0] != strconv.Itoa(cpus) {
		t.Errorf("the guest has %s CPUs and %s kB, want %d and somewhat less than %d MiB", out[0], out[2], cpus, memoryMiB)
	}
}

// wantLimits fails the test unless the container's cgroup has these limits.
func wantLimits(ctx context.Context, t *testing.T, c *harness.Container, cpu string, memory, pids int) {
	t.Helper()
	out := execOut(ctx, t, c, harness.ExecConfig{Args: script("cd /sys/fs/cgroup; cat cpu.max memory.max pids.max")})
	want := strings.Join([]string{cpu, strconv.Itoa(memory), strconv.Itoa(pids)}, "\n") + "\n"
	if out != want {
		t.Errorf("limits are %q, want %q", out, want)
	}
}
