package containerd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// A statically sized machine has the size that CRI's annotations give for the
// pod, and keeps it.
func TestStaticSizing(t *testing.T) {
	needVM(t)
	configure := func(o *harness.Options) {
		o.Kata.Extra = "[runtime]\nstatic_sandbox_resource_mgmt = true\n"
	}
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
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
		updateLimits(ctx, t, c, 150_000, 300*mib, 60)
		wantGuest(ctx, t, c, 2, 384)
		wantLimits(ctx, t, c, "150000 100000", 300*mib, 60)
	})
}

// limited returns an idle container with limits: a quota of 100 ms, bytes,
// processes.
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

// own is more than what the guest's kernel reserves of its memory, in MiB.
const own = 60

// wantGuest fails the test unless the guest has that many CPUs and that much
// memory, less what its kernel reserves.
func wantGuest(ctx context.Context, t *testing.T, c *harness.Container, cpus, memoryMiB int) {
	t.Helper()
	gotCPUs, gotMiB := guestSize(ctx, t, c)
	if gotCPUs != cpus || gotMiB <= memoryMiB-own || gotMiB > memoryMiB {
		t.Errorf("the guest has %d CPUs and %d MiB, want %d and somewhat less than %d MiB", gotCPUs, gotMiB, cpus, memoryMiB)
	}
}

func guestSize(ctx context.Context, t *testing.T, c *harness.Container) (cpus, memoryMiB int) {
	t.Helper()
	out := execOut(ctx, t, c, harness.ExecConfig{Args: script("nproc; grep MemTotal /proc/meminfo")})
	var kib int
	if _, err := fmt.Sscanf(out, "%d\nMemTotal: %d kB", &cpus, &kib); err != nil {
		t.Fatalf("the guest says %q: %v", out, err)
	}
	return cpus, kib >> 10
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

// A machine grows with its containers' limits and shrinks if it can: CPUs with
// KVM, memory with virtio-mem.
func TestDynamicSizing(t *testing.T) {
	needVM(t)
	for _, virtio := range []bool{false, true} {
		t.Run(fmt.Sprintf("virtio-mem=%v", virtio), func(t *testing.T) {
			configure := func(o *harness.Options) {
				o.Kata.Extra = fmt.Sprintf("enable_virtio_mem = %v\ndefault_maxmemory = 1024\ndefault_maxvcpus = 2\n", virtio)
			}
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				playDynamic(ctx, t, d, virtio)
			})
		})
	}
}

func playDynamic(ctx context.Context, t *testing.T, d *harness.Daemon, virtio bool) {
	t.Helper()
	mark := d.LogSize()
	pod := newPod(ctx, t, d)
	free := idle(ctx, t, pod)
	wantGuest(ctx, t, free, 1, 256)
	c := add(ctx, t, pod, limited("limited", 50_000, 100*mib, 50))
	wantGuest(ctx, t, c, 2, 384)
	wantLimits(ctx, t, c, "50000 100000", 100*mib, 50)
	updateLimits(ctx, t, c, 100_000, 300*mib, 60)
	wantGuest(ctx, t, c, 2, 640)
	wantLimits(ctx, t, c, "100000 100000", 300*mib, 60)
	updateLimits(ctx, t, c, 20_000, 100*mib, 70)
	wantLimits(ctx, t, c, "20000 100000", 100*mib, 70)
	if _, err := c.KillAndWait(ctx); err != nil {
		t.Fatal(err)
	}
	cpus, memory := 1, 640
	if strings.Contains(d.LogSince(mark, 1000), "accel=tcg") {
		cpus = 2 // QEMU cannot unplug them (hypervisor/qemu, SetVCPUs)
	}
	if virtio {
		memory = 256
	}
	awaitGuest(ctx, t, free, cpus, memory)
}

func updateLimits(ctx context.Context, t *testing.T, c *harness.Container, quota, memory, pids int64) {
	t.Helper()
	period := uint64(100_000)
	if err := c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
		Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}, Pids: &specs.LinuxPids{Limit: &pids},
	})); err != nil {
		t.Error(err)
	}
}

// awaitGuest waits until the guest has that size: it shrinks asynchronously.
func awaitGuest(ctx context.Context, t *testing.T, c *harness.Container, cpus, memoryMiB int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		gotCPUs, gotMiB := guestSize(ctx, t, c)
		if gotCPUs == cpus && gotMiB > memoryMiB-own && gotMiB <= memoryMiB {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the guest has %d CPUs and %d MiB, want %d and somewhat less than %d MiB", gotCPUs, gotMiB, cpus, memoryMiB)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
