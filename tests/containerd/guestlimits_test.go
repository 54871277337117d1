package containerd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// everyLimit returns one of each limit, with numbers from n on.
func everyLimit(n int64) *specs.LinuxResources {
	var (
		memory, swap, reservation = n * mib, (n + 1) * mib, n * mib / 2
		period                    = uint64(100_000)
		quota, pids, idle         = n * 2000, n, int64(0)
		shares, weight            = uint64(262144), uint16(500)
		burst                     = uint64(n * 10)
	)
	return &specs.LinuxResources{
		Memory:         &specs.LinuxMemory{Limit: &memory, Swap: &swap, Reservation: &reservation},
		CPU:            &specs.LinuxCPU{Period: &period, Quota: &quota, Shares: &shares, Burst: &burst, Idle: &idle, Cpus: "900", Mems: "9"},
		Pids:           &specs.LinuxPids{Limit: &pids},
		BlockIO:        &specs.LinuxBlockIO{Weight: &weight},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: uint64(n) * mib / 5}, {Pagesize: "1MB"}},
		Unified: map[string]string{
			"memory.high": fmt.Sprint((n - 1) * mib), "memory.min": fmt.Sprint(mib), "memory.oom.group": "1", "cpuset.cpus": "0",
		},
	}
}

// limitFiles are where those limits are in the guest.
var limitFiles = []string{
	"memory.max", "memory.swap.max", "memory.low", "memory.high", "memory.min", "memory.oom.group", "cpu.max", "cpu.max.burst",
	"cpu.weight", "cpu.idle", "pids.max", "io.weight", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "cpuset.cpus", "cpuset.mems",
}

// wantEveryLimit compares a container's cgroup with everyLimit.
func wantEveryLimit(ctx context.Context, t *testing.T, c *harness.Container, n int64) {
	t.Helper()
	out := execOut(ctx, t, c, harness.ExecConfig{
		Args: script("cd /sys/fs/cgroup; for f in " + strings.Join(limitFiles, " ") + "; do read -r v < $f; echo $f $v; done"),
	})
	want := map[string]string{
		"memory.max": fmt.Sprint(n * mib), "memory.swap.max": fmt.Sprint(mib), "memory.low": fmt.Sprint(n * mib / 2),
		"memory.high": fmt.Sprint((n - 1) * mib), "memory.min": fmt.Sprint(mib), "memory.oom.group": "1",
		"cpu.max": fmt.Sprintf("%d 100000", n*2000), "cpu.max.burst": fmt.Sprint(n * 10), "cpu.weight": "10000", "cpu.idle": "0",
		"pids.max": fmt.Sprint(n), "io.weight": "default 4950",
		"hugetlb.2MB.max": fmt.Sprint(n * mib / 5), "hugetlb.2MB.rsvd.max": fmt.Sprint(n * mib / 5), "cpuset.cpus": "", "cpuset.mems": "",
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		file, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[file] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

// Each limit that the guest's kernel supports is set, at the start and by an
// update, and unsupported ones are logged.
func TestEveryLimit(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		mark := d.LogSize()
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "limited", Args: []string{"sleep", "100000"},
			Spec: []oci.SpecOpts{withCgroups, withLimits(func(r *specs.LinuxResources) {
				devices := r.Devices
				*r = *everyLimit(40)
				r.Devices = devices
			})},
		})
		wantEveryLimit(ctx, t, c, 40)
		const lost = `not enforced by the guest: the cgroup's file cpuset.cpus"`
		awaitLog(ctx, t, d, mark, "level=warning", "source=agent", lost)
		mark = d.LogSize()
		if err := c.Task.Update(ctx, client.WithResources(everyLimit(50))); err != nil {
			t.Fatal(err)
		}
		wantEveryLimit(ctx, t, c, 50)
		awaitLog(ctx, t, d, mark, "level=warning", "source=agent", lost)
	})
}

// A limit that is set by a file's name stays until it is set again, by that
// name or by a field; an idle cgroup (cpu.idle) has no weight.
func TestLimitsByName(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{
			Name: "named", Args: []string{"sleep", "100000"},
			Spec: []oci.SpecOpts{withCgroups, withLimits(func(r *specs.LinuxResources) {
				r.Unified = map[string]string{"pids.max": "33", "cpu.max": "150000 200000", "cpu.weight": "77", "io.weight": "88"}
			})},
		})
		update := func(r *specs.LinuxResources) {
			t.Helper()
			if err := c.Task.Update(ctx, client.WithResources(r)); err != nil {
				t.Fatal(err)
			}
		}
		want := func(files, values string) {
			t.Helper()
			got := strings.Join(strings.Fields(execOut(ctx, t, c, harness.ExecConfig{Args: script("cd /sys/fs/cgroup; cat " + files)})), " ")
			if got != values {
				t.Errorf("%s: %q, want %q", files, got, values)
			}
		}
		const files = "pids.max cpu.max cpu.weight io.weight"
		want(files, "33 150000 200000 77 default 88")
		limit, memory := int64(44), int64(50*mib)
		update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}, Pids: &specs.LinuxPids{Limit: &limit}})
		want(files, "44 150000 200000 77 default 88")
		update(&specs.LinuxResources{Unified: map[string]string{"pids.max": "55", "cpu.idle": "1"}})
		want("pids.max cpu.idle", "55 1")
		limit = 66
		update(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &limit}})
		want("pids.max cpu.idle", "66 1")
		wantBoundCgroups(ctx, t, pod)
	})
}

// wantBoundCgroups starts a container with the bind of the host's cgroups that systemd's
// images ask for: it has its own cgroup there, at the place that /proc names.
func wantBoundCgroups(ctx context.Context, t *testing.T, pod *harness.Pod) {
	t.Helper()
	c := add(ctx, t, pod, harness.ContainerConfig{
		Name: "bound", Args: script("cat /sys/fs/cgroup/pids.max /proc/self/cgroup; mkdir /sys/fs/cgroup/init.scope && echo made"),
		Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
			{Destination: "/sys/fs/cgroup", Type: "bind", Source: "/sys/fs/cgroup", Options: []string{"rbind", "rprivate", "rw"}},
		}), withLimits(func(r *specs.LinuxResources) { r.Pids = &specs.LinuxPids{Limit: ptr(int64(22))} })},
	})
	wantCode(ctx, t, &c.Process, 0)
	if got := c.Out.String(); got != "22\n0::/\nmade\n" {
		t.Errorf("with a bind of the cgroups: %q", got)
	}
}

// A value that the kernel refuses fails the container with an error that names
// the file.
func TestLimitsThatFail(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		err := create(ctx, d, harness.ContainerConfig{Name: "wrong", Args: []string{"true"}, Spec: []oci.SpecOpts{
			withLimits(func(r *specs.LinuxResources) { r.Unified = map[string]string{"memory.high": "much"} }),
		}})
		wantError(t, err, "memory.high")
	})
}

func TestOOMScore(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		for _, score := range []int{-998, 0, 777} {
			c := add(ctx, t, pod, harness.ContainerConfig{
				Name: "score", Args: script("cat /proc/self/oom_score_adj"),
				Spec: []oci.SpecOpts{func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
					spec.Process.OOMScoreAdj = &score
					return nil
				}},
			})
			wantCode(ctx, t, &c.Process, 0)
			if got := c.Out.String(); got != fmt.Sprintln(score) {
				t.Errorf("oom_score_adj is %q, want %d", got, score)
			}
		}
	})
}
