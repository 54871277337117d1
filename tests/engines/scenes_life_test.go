package engines

import (
	"context"
	"fmt"
	"strings"

	"github.com/katabox/katabox/tests/image"
)

// How a container ends, and begins again.
func lifeScenes() []scene {
	return []scene{
		{name: "stop", short: true, play: playStop},
		{name: "kill", play: playKill},
		{name: "remove", play: playRemove},
		{name: "restart", short: true, play: playRestart},
		{name: "create", play: playCreate},
		{name: "pause", short: true, play: playPause},
		{name: "attach", play: playAttach},
		{name: "rename", play: playRename},
	}
}

// ends returns state and exit code of a container that has ended.
func ends(ctx context.Context, s *stage, name, want string) string {
	return s.eventually(ctx, want, func() string { return s.inspect(ctx, name, "{{.State.Status}} {{.State.ExitCode}}") })
}

func playStop(ctx context.Context, s *stage) {
	polite := s.container("polite")
	if s.start(ctx, polite, `trap 'echo bye; exit 143' TERM; echo ready; while :; do sleep 0.1; done`) {
		s.expect("polite: ready", s.logged(ctx, polite, "ready"), "true")
		s.expect("polite", s.run(ctx, "stop", "-t", "30", polite).code, "0")
		s.expect("polite: end", ends(ctx, s, polite, "exited 143"), "exited 143")
		s.expect("polite: last words", s.run(ctx, "logs", polite).stdout, "ready\nbye\n")
	}
	deaf := s.container("deaf")
	if s.start(ctx, deaf, `trap '' TERM; echo ready; while :; do sleep 0.1; done`) {
		s.expect("deaf: ready", s.logged(ctx, deaf, "ready"), "true")
		s.expect("deaf", s.run(ctx, "stop", "-t", "1", deaf).code, "0")
		s.expect("deaf: end", ends(ctx, s, deaf, "exited 137"), "exited 137")
	}
	other := s.container("signal")
	if s.start(ctx, other, `trap 'exit 12' USR1; echo ready; while :; do sleep 0.1; done`, "--stop-signal", "SIGUSR1") {
		s.expect("signal: ready", s.logged(ctx, other, "ready"), "true")
		s.run(ctx, "stop", "-t", "30", other)
		s.expect("signal: end", ends(ctx, s, other, "exited 12"), "exited 12")
	}
}

func playKill(ctx context.Context, s *stage) {
	name := s.container("main")
	if s.start(ctx, name, "sleep 1000") {
		s.expect("kill", s.run(ctx, "kill", name).code, "0")
		s.expect("wait", s.run(ctx, "wait", name).out(), "137")
		s.expect("end", ends(ctx, s, name, "exited 137"), "exited 137")
		s.expect("again", s.run(ctx, "kill", name).code != 0, "true")
	}
	name = s.container("signal")
	if s.start(ctx, name, `trap 'echo hup' HUP; echo ready; while :; do sleep 0.1; done`) {
		s.expect("signal: ready", s.logged(ctx, name, "ready"), "true")
		s.expect("signal", s.run(ctx, "kill", "-s", "HUP", name).code, "0")
		s.expect("signal: arrived", s.logged(ctx, name, "hup"), "true")
		s.expect("signal: state", s.inspect(ctx, name, "{{.State.Status}}"), "running")
	}
	name = s.container("init")
	if s.start(ctx, name, "echo ready; exec sleep 1000", "--init") {
		s.expect("init: ready", s.logged(ctx, name, "ready"), "true")
		s.run(ctx, "kill", "-s", "TERM", name)
		s.expect("init", ends(ctx, s, name, "exited 143"), "exited 143")
	}
}

func playRemove(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000") {
		return
	}
	s.expect("running", s.run(ctx, "rm", name).code != 0, "true")
	s.expect("forced", s.run(ctx, "rm", "-f", name).code, "0")
	s.expect("gone", s.run(ctx, "inspect", "--type", "container", name).code != 0, "true")
	s.expect("same name again", s.run(ctx, "run", "--name", name, image.Busybox, "true").code, "0")
}

func playRestart(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "echo run >>/runs; wc -l </runs; sleep 1000") {
		return
	}
	s.expect("first", s.logged(ctx, name, "1\n"), "true")
	s.expect("restart", s.run(ctx, "restart", "-t", "0", name).code, "0")
	s.expect("second", s.logged(ctx, name, "2\n"), "true")
	s.expect("stop", s.run(ctx, "stop", "-t", "0", name).code, "0")
	s.expect("start", s.run(ctx, "start", name).code, "0")
	s.expect("third", s.logged(ctx, name, "3\n"), "true")
	s.expect("exec", s.run(ctx, "exec", name, "wc", "-l", "/runs"), `exit 0 "3 /runs\n"`)
}

func playCreate(ctx context.Context, s *stage) {
	name := s.container("main")
	s.expect("create", s.run(ctx, "create", "--name", name, image.Busybox, "sh", "-c", "echo hello; exit 9").code, "0")
	s.note("state", s.inspect(ctx, name, "{{.State.Status}}"))
	s.note("start attached", s.run(ctx, "start", "-a", name))
	s.expect("end", ends(ctx, s, name, "exited 9"), "exited 9")
}

func playPause(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, `while :; do echo alive >>/lines; sleep 0.05; done`) {
		return
	}
	s.expect("pause", s.run(ctx, "pause", name).code, "0")
	s.expect("state", s.inspect(ctx, name, "{{.State.Status}}"), "paused")
	s.note("exec", s.run(ctx, "exec", name, "true").code != 0)
	s.expect("unpause", s.run(ctx, "unpause", name).code, "0")
	s.expect("state after", s.inspect(ctx, name, "{{.State.Status}}"), "running")
	s.expect("exec after", s.run(ctx, "exec", name, "sh", "-c", "until test -s /lines; do sleep 0.1; done").code, "0")
	s.run(ctx, "pause", name)
	s.expect("stop while paused", s.run(ctx, "rm", "-f", name).code, "0")
}

// asksAgain prints "ready" until it gets a line, so that late clients see it
// too. It begins with a delay: Podman shows output before it reads its
// terminal's keys.
const asksAgain = "sleep 2; until read -t 1 line; do echo ready; done; echo got $line; exit 8"

func playAttach(ctx context.Context, s *stage) {
	const detachKeys = "\x10\x11" // ^P ^Q
	name := s.container("terminal")
	r := s.terminal(ctx, detachKeys, "run", "-it", "--name", name, image.Busybox, "sh", "-c", asksAgain)
	s.expect("detach", r.code, "0")
	s.expect("detached", s.inspect(ctx, name, "{{.State.Status}}"), "running")
	r = s.terminal(ctx, "word\n", "attach", name)
	s.expect("attach", r.code, "8")
	s.expect("attach: output", strings.Contains(r.stdout, "got word\r"), "true")
	s.expect("end", ends(ctx, s, name, "exited 8"), "exited 8")
	if !has(s.engine, StartInput) {
		return
	}
	name = s.container("input")
	s.expect("create", s.run(ctx, "create", "-i", "--name", name, image.Busybox, "sh", "-c",
		"read line; echo got $line; sleep 0.5; exit 8").code, "0")
	r = s.runWith(ctx, "word\n", "start", "-a", "-i", name)
	s.expect("start with input", r, `exit 8 "got word\n"`)
	s.expect("start with input: end", ends(ctx, s, name, "exited 8"), "exited 8")
}

func playRename(ctx context.Context, s *stage) {
	name, other := s.container("main"), s.container("other")
	if !s.start(ctx, name, "sleep 1000") {
		return
	}
	s.expect("rename", s.run(ctx, "rename", name, other).code, "0")
	s.expect("exec", s.run(ctx, "exec", other, "true").code, "0")
	s.note("update", s.run(ctx, "update", "--memory", "96m", "--memory-swap", "96m", other).code)
	s.note("update: limit", s.run(ctx, "exec", other, "sh", "-c", memoryLimit))
	s.expect("state", fmt.Sprint(s.inspect(ctx, other, "{{.State.Running}}")), "true")
}
