package engines

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// A running container that is changed from outside: its limits, and by signals.
func changeScenes() []scene {
	return []scene{
		{name: "update", needs: Daemon, play: playUpdate}, // Podman 4.3 has other flags
		{name: "signals", play: playSignals},
	}
}

func playUpdate(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000", "--memory", "64m", "--memory-swap", "64m", "--pids-limit", "100") {
		return
	}
	update := func(flags ...string) int {
		return s.run(ctx, append(append([]string{"update"}, flags...), name)...).code
	}
	limits := func() result { return s.run(ctx, "exec", name, "sh", "-c", memoryLimit+"; "+pidsLimit+"; "+cpuLimit) }
	s.expect("raise", update("--memory", "96m", "--memory-swap", "96m", "--pids-limit", "200", "--cpu-quota", "50000"), "0")
	s.expect("raised", limits(), `exit 0 "100663296\n200\n50000 100000\n"`)
	s.expect("fill", s.run(ctx, "exec", name, "dd", "if=/dev/zero", "of=/dev/shm/full", "bs=1M", "count=20").code, "0")
	if v1Host() { // the kernel of another kills runc's containers
		s.expect("below what is in use", update("--memory", "8m", "--memory-swap", "8m") != 0, "true")
		s.expect("as before", limits(), `exit 0 "100663296\n200\n50000 100000\n"`)
	}
	s.expect("lower", update("--memory", "48m", "--memory-swap", "48m", "--pids-limit", "50", "--cpu-quota", "30000"), "0")
	s.expect("lowered", limits(), `exit 0 "50331648\n50\n30000 100000\n"`)
	s.expect("stop", s.run(ctx, "stop", "-t", "0", name).code, "0")
	s.note("while stopped", update("--memory", "80m", "--memory-swap", "80m"))
	s.expect("start", s.run(ctx, "start", name).code, "0")
	s.note("started", limits())
}

// v1Host reports whether the host has cgroup v1.
func v1Host() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err != nil
}

func playSignals(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "trap 'echo got 36' 36; echo ready; while :; do sleep 0.1; done") {
		return
	}
	s.expect("ready", s.logged(ctx, name, "ready"), "true")
	count := func() string { return fmt.Sprint(strings.Count(s.run(ctx, "logs", name).stdout, "got 36\n")) }
	s.expect("real-time", s.run(ctx, "kill", "-s", "RTMIN+2", name).code, "0")
	s.expect("real-time: arrived", s.eventually(ctx, "1", count), "1")
	s.expect("STOP", s.run(ctx, "kill", "-s", "STOP", name).code, "0")
	state := func() string { return s.run(ctx, "exec", name, "awk", "/^State/ {print $2}", "/proc/1/status").out() }
	s.expect("stopped", s.eventually(ctx, "T", state), "T")
	s.expect("while stopped", s.run(ctx, "kill", "-s", "RTMIN+2", name).code, "0")
	s.expect("CONT", s.run(ctx, "kill", "-s", "CONT", name).code, "0")
	s.expect("real-time: arrived then", s.eventually(ctx, "2", count), "2")
	s.note("no such signal", s.run(ctx, "kill", "-s", "NOPE", name).code != 0)
}
