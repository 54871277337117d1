package engines

import (
	"context"
	"strings"
)

// Limits of a container, as it sees them and as they are enforced.
func limitScenes() []scene {
	return []scene{
		{name: "cpus", play: playCPUs},
		{name: "memory", play: playMemory},
		{name: "ulimits", play: playUlimits},
	}
}

// The limits of the reader's cgroup, of version 2 or 1, in the same format.
const (
	memoryLimit = "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
	cpuLimit    = "cat /sys/fs/cgroup/cpu.max 2>/dev/null || " +
		"echo $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us) $(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)"
	pidsLimit = "cat /sys/fs/cgroup/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids/pids.max"
)

func playCPUs(ctx context.Context, s *stage) {
	s.expect("half a CPU", s.script(ctx, cpuLimit, "--cpus", "0.5"), `exit 0 "50000 100000\n"`)
	s.note("shares", s.script(ctx, "true", "--cpu-shares", "512").code)
	s.expect("set", s.script(ctx, "nproc", "--cpuset-cpus", "0"), `exit 0 "1\n"`)
}

func playMemory(ctx context.Context, s *stage) {
	s.expect("limit", s.script(ctx, memoryLimit, "--memory", "48m"), `exit 0 "50331648\n"`)
	name := s.container("oom")
	// dd's buffer is memory that cannot be reclaimed.
	if s.start(ctx, name, "exec dd if=/dev/zero of=/dev/null bs=200M", "--memory", "32m", "--memory-swap", "32m") {
		s.expect("too much", ends(ctx, s, name, "exited 137"), "exited 137")
		if has(s.engine, OOMReport) {
			s.expect("too much: said", s.inspect(ctx, name, "{{.State.OOMKilled}}"), "true")
		}
	}
	s.expect("a child", s.script(ctx, "dd if=/dev/zero of=/dev/null bs=200M; echo $?", "--memory", "32m", "--memory-swap", "32m"), `exit 0 "137\n"`)
}

func playUlimits(ctx context.Context, s *stage) {
	s.expect("files", s.script(ctx, "ulimit -n; ulimit -Hn", "--ulimit", "nofile=100:200"), `exit 0 "100\n200\n"`)
	s.expect("processes", s.script(ctx, pidsLimit, "--pids-limit", "77"), `exit 0 "77\n"`)
	r := s.script(ctx, "for i in $(seq 20); do sleep 5 & done; wait", "--pids-limit", "10")
	s.expect("fork fails", strings.Contains(r.stderr, "fork"), "true")
	s.note("OOM score", s.script(ctx, "cat /proc/self/oom_score_adj", "--oom-score-adj", "321"))
	s.expect("core", s.script(ctx, "ulimit -c", "--ulimit", "core=0"), `exit 0 "0\n"`)
}
