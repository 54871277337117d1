package engines

import (
	"context"
	"fmt"
	"strings"

	"github.com/katabox/katabox/tests/image"
)

// What the engine's daemon does by itself.
func daemonScenes() []scene {
	return []scene{
		{name: "restart policy", needs: RestartPolicy, play: playRestartPolicy},
		{name: "health", needs: HealthChecks, play: playHealth},
		{name: "live restore", needs: Daemon, play: playLiveRestore},
	}
}

func playRestartPolicy(ctx context.Context, s *stage) {
	name := s.container("limited")
	if s.start(ctx, name, "echo run; exit 3", "--restart", "on-failure:2") {
		s.expect("limited", s.eventually(ctx, "run\nrun\nrun\n", func() string {
			return s.run(ctx, "logs", name).stdout
		}), "run\nrun\nrun\n")
		s.expect("limited: end", ends(ctx, s, name, "exited 3"), "exited 3")
	}
	name = s.container("always")
	if s.start(ctx, name, "echo run >>/runs; exec sleep 1000", "--restart", "always", "--init") {
		s.expect("always: first", s.eventually(ctx, "1", func() string { return runs(ctx, s, name) }), "1")
		s.run(ctx, "exec", name, "sh", "-c", "kill -9 $(pidof sleep)")
		s.expect("always: second", s.eventually(ctx, "2", func() string { return runs(ctx, s, name) }), "2")
		s.expect("always: stop", s.run(ctx, "stop", "-t", "0", name).code, "0")
	}
}

func runs(ctx context.Context, s *stage, name string) string {
	return s.run(ctx, "exec", name, "sh", "-c", "wc -l </runs").out()
}

func playHealth(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "touch /well; sleep 1000", "--health-cmd", "test -e /well", "--health-interval", "1s",
		"--health-retries", "2", "--health-timeout", "30s") {
		return
	}
	health := func() string {
		s.checkHealth(ctx, name)
		return s.inspect(ctx, name, "{{.State.Health.Status}}")
	}
	s.expect("well", s.eventually(ctx, "healthy", health), "healthy")
	s.run(ctx, "exec", name, "rm", "/well")
	s.expect("ill", s.eventually(ctx, "unhealthy", health), "unhealthy")
}

// checkHealth runs Podman's health check: its timers need systemd, which does
// not run here.
func (s *stage) checkHealth(ctx context.Context, name string) {
	if strings.HasPrefix(s.engine.Name(), "podman") {
		s.run(ctx, "healthcheck", "run", name)
	}
}

func playLiveRestore(ctx context.Context, s *stage) {
	name, short := s.container("long"), s.container("short")
	if !s.start(ctx, name, `trap 'exit 143' TERM; i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done`) ||
		!s.start(ctx, short, "while ! test -e /end; do sleep 0.1; done; echo last words; exit 17") {
		return
	}
	s.expect("crash", s.engine.Crash(ctx), "<nil>")
	s.expect("state", s.inspect(ctx, name, "{{.State.Status}}"), "running")
	s.expect("exec", s.run(ctx, "exec", name, "echo", "still here"), `exit 0 "still here\n"`)
	s.expect("logs", s.logged(ctx, name, "tick"), "true")
	s.expect("tell the short one", s.run(ctx, "exec", short, "touch", "/end").code, "0")
	s.expect("short: end", ends(ctx, s, short, "exited 17"), "exited 17")
	s.expect("stop", s.run(ctx, "stop", "-t", "30", name).code, "0")
	s.expect("end", ends(ctx, s, name, "exited 143"), "exited 143")
	s.expect("next", fmt.Sprint(s.run(ctx, "run", "--rm", image.Busybox, "echo", "next")), `exit 0 "next\n"`)
}
