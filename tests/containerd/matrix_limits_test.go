package containerd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/tests/harness"
)

// limitScenes test cgroups: limits, counters, and running out of memory.
func limitScenes() []scene {
	return []scene{
		{"update", playUpdate},
		{"stats", playStats},
		{"out of memory", playOOM},
		{"out of memory in an exec", playExecOOM},
	}
}

// withLimits sets resources in the spec.
func withLimits(change func(*specs.LinuxResources)) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
		if spec.Linux.Resources == nil {
			spec.Linux.Resources = &specs.LinuxResources{}
		}
		change(spec.Linux.Resources)
		return nil
	}
}

func withMemory(limit int64) oci.SpecOpts {
	return withLimits(func(r *specs.LinuxResources) {
		r.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
	})
}

// withCgroups mounts the container's cgroups into it.
var withCgroups = oci.WithMounts([]specs.Mount{{
	Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "noexec", "nodev"},
}})

// showLimits prints the limits as cgroup v1 has them on the host, or v2 in a
// guest.
const showLimits = `cd /sys/fs/cgroup
if [ -e memory.max ]; then echo memory $(cat memory.max) pids $(cat pids.max) cpu $(sed s/max/-1/ cpu.max)
else echo memory $(cat memory/memory.limit_in_bytes) pids $(cat pids/pids.max) cpu $(cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us)
fi`

const mib = 1 << 20

func playUpdate(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{
		Args: []string{"sleep", "100000"},
		Spec: []oci.SpecOpts{withCgroups, withMemory(64 * mib), withLimits(func(r *specs.LinuxResources) {
			limit := int64(50)
			r.Pids = &specs.LinuxPids{Limit: &limit}
		})},
	})
	show := func() string {
		e := s.exec(ctx, c, harness.ExecConfig{Args: script(showLimits)})
		return s.code(ctx, e) + " " + strings.TrimSpace(e.Out.String()+e.Err.String())
	}
	update := func(r *specs.LinuxResources) string {
		_, err := s.order(ctx, "Update", &task.UpdateTaskRequest{ID: c.Box.ID(), Resources: resources(r)})
		return kind(err)
	}
	memory, pids, quota, period := int64(96*mib), int64(60), int64(50000), uint64(100000)
	s.note("at first", "%s", show())
	s.note("memory", "%s", update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}}))
	s.note("pids", "%s", update(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}}))
	s.note("cpu", "%s", update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}}))
	s.note("after", "%s", show())
	s.note("nothing", "%s", update(&specs.LinuxResources{}))
	s.note("after nothing", "%s", show())
	m := s.stats(ctx, c)
	s.note("stats", "memory %d, pids %d", m.GetMemory().GetUsage().GetLimit(), m.GetPids().GetLimit())
	_, err := s.order(ctx, "Update", &task.UpdateTaskRequest{ID: c.Box.ID(), Resources: &anypb.Any{}})
	s.note("without resources", "%s", kind(err))
}

// stats reads a container's counters; this host has cgroup v1.
func (s *stage) stats(ctx context.Context, c *harness.Container) *stats.Metrics {
	s.t.Helper()
	var r task.StatsResponse
	s.must(s.call(ctx, "Stats", &task.StatsRequest{ID: c.Box.ID()}, &r), "stats")
	var m stats.Metrics
	s.must(r.Stats.UnmarshalTo(&m), "decode stats")
	return &m
}

func playStats(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(`i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo ready; exec sleep 100000`)})
	s.says(ctx, &c.Process, "ready")
	m := s.stats(ctx, c)
	cpu, memory := m.GetCPU().GetUsage(), m.GetMemory().GetUsage()
	s.note("cpu used", "%t", cpu.GetTotal() > 0)
	// cgroup v1 samples user and system time apart from the total, v2 splits
	// it.
	s.note("user and system within total", "%t", cpu.GetUser()+cpu.GetKernel() <= cpu.GetTotal()+20e6)
	if s.d.Runtime().VM && cpu.GetUser()+cpu.GetKernel() > cpu.GetTotal() {
		s.t.Errorf("%s: user %d and system %d are more than the total %d", s.scene, cpu.GetUser(), cpu.GetKernel(), cpu.GetTotal())
	}
	s.note("cpu of each", "%t", cpu.GetUser()+cpu.GetKernel() > 0)
	s.note("memory used", "%t", memory.GetUsage() > 0 && memory.GetUsage() <= memory.GetMax())
	s.note("pids", "%d", m.GetPids().GetCurrent())
	again := s.stats(ctx, c)
	s.note("cpu grows", "%t", again.GetCPU().GetUsage().GetTotal() >= cpu.GetTotal())
}

// hog allocates more than 32 MiB at once.
var hog = []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"}

func playOOM(ctx context.Context, s *stage) {
	// Not immediately: runc's shim begins to watch after it has started the
	// init.
	late := script("sleep 1; exec " + strings.Join(hog, " "))
	c := s.run(ctx, harness.ContainerConfig{Args: late, Spec: []oci.SpecOpts{withMemory(32 * mib)}})
	s.note("exit", "%s", s.code(ctx, &c.Process))
	s.noteOOM(ctx, c, "exit(init)=137")
}

func playExecOOM(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withMemory(32 * mib)}})
	e := s.exec(ctx, c, harness.ExecConfig{Args: hog})
	s.note("exit", "%s", s.code(ctx, e))
	s.noteOOM(ctx, c, fmt.Sprintf("exit(%s)=137", e.ID()))
}

// noteOOM records the events. runc's shim learns of the kill and of the exit
// independently, in any order, and with cgroup v1 it may report one kill twice: the
// kernel notifies of each allocation that fails (memory cgroup's oom_control), not
// of each kill. Ours must report a kill once, before the exit.
func (s *stage) noteOOM(ctx context.Context, c *harness.Container, exit string) {
	s.t.Helper()
	s.events(ctx, c, exit)
	list := s.events(ctx, c, "oom")
	told := sorted(list)
	if !s.d.Runtime().VM {
		told = strings.Replace(told, "oom, oom", "oom", 1)
	}
	s.note("events", "%s", told)
	order := strings.Split(list, ", ")
	if s.d.Runtime().VM && slices.Index(order, "oom") > slices.Index(order, exit) {
		s.t.Errorf("%s: the exit came before the kill for memory: %s", s.scene, list)
	}
}
