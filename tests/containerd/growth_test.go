package containerd

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/qemu"
	"github.com/katabox/katabox/hypervisor/release"
	"github.com/katabox/katabox/tests/harness"
)

// A small machine grows for a container that may use much memory. The guest's kernel
// describes added memory in what it has: 14 GiB at once would take 224 MiB of its 256,
// with which it panics.
func TestMuchMemory(t *testing.T) {
	needVM(t)
	const gib, limit = 1 << 30, 14
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		t.Fatal(err)
	}
	if total := host.Totalram * uint64(host.Unit) / gib; total <= limit {
		t.Skipf("the host has %d GiB, and no machine may have more than %d", total, limit)
	}
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c, _ := startIdle(ctx, t, d, oci.WithMemoryLimit(limit*gib))
		out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"awk", "/MemTotal/ { print $2 }", "/proc/meminfo"}})
		if kib, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || kib < limit<<20 {
			t.Errorf("the guest has %q KiB, %v, want %d GiB", out, err, limit)
		}
	})
}

// The guest's kernel patches its code while several CPUs execute it: a static key
// (Documentation/staging/static-keys.rst in Linux) is switched on and off, and
// processes use its code. With CPUs in parallel QEMU before 8.1 hangs within seconds,
// and a later one in one of some twenty runs (hypervisor/qemu, ParallelSince).
func TestPatchedKernel(t *testing.T) {
	needVM(t)
	needTwoCPUs(t)
	needTurns(t)
	const script = `
		key=/proc/sys/kernel/sched_schedstats
		while :; do echo 1 >$key; echo 0 >$key; done &
		while :; do /bin/true; done &
		end=$(($(cut -d. -f1 /proc/uptime) + 30))
		while [ $(cut -d. -f1 /proc/uptime) -lt $end ]; do :; done
		cat $key; kill %1 %2; nproc`
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c, _ := startIdle(ctx, t, d, oci.WithPrivileged, oci.WithCPUCFS(200_000, 100_000))
		out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"sh", "-c", script}})
		if lines := strings.Fields(out); len(lines) != 2 || lines[0] != "0" && lines[0] != "1" || lines[1] == "1" {
			t.Errorf("the key and the number of CPUs: %q", out)
		}
	})
}

// needTurns skips a test where CPUs do not take turns.
func needTurns(t *testing.T) {
	t.Helper()
	if accel, _ := qemu.DetectAccel(qemu.Host{}); accel != hypervisor.AccelTCG {
		t.Skip("there is KVM")
	}
	v, known := release.Parse(qemu.Version(t.Context(), "qemu-system-x86_64"))
	if !known {
		t.Fatal("QEMU's version is unknown")
	}
	if !v.Before(qemu.ParallelSince) {
		t.Skipf("QEMU %v runs CPUs in parallel", v)
	}
}
