package engines

import (
	"context"
	"strconv"
	"strings"
)

// Other processes in a container.
func execScenes() []scene {
	return []scene{
		{name: "exec", short: true, play: playExec},
		{name: "exec ways", play: playExecWays},
		{name: "top", play: playTop},
		{name: "stats", short: true, play: playStats},
	}
}

func playExec(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000") {
		return
	}
	s.expect("output", s.run(ctx, "exec", name, "echo", "hi"), `exit 0 "hi\n"`)
	s.expect("exit 42", s.run(ctx, "exec", name, "sh", "-c", "exit 42").code, "42")
	s.note("no program", s.run(ctx, "exec", name, "no-such-program").code)
	s.note("not executable", s.run(ctx, "exec", name, "/etc/passwd").code)
	s.expect("killed", s.run(ctx, "exec", name, "sh", "-c", "kill -9 $$").code, "137")
	s.expect("terminated", s.run(ctx, "exec", name, "sh", "-c", "kill -15 $$").code, "143")
	s.expect("input", s.runWith(ctx, "abc\n", "exec", "-i", name, "cat"), `exit 0 "abc\n"`)
	r := s.terminal(ctx, "", "exec", "-it", name, "sh", "-c", "test -t 0 && echo tty; stty size; exit 6")
	s.expect("terminal: exit", r.code, "6")
	s.expect("terminal: is one", strings.Contains(r.stdout, "tty\r"), "true")
}

func playExecWays(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000", "-e", "A=of the container") {
		return
	}
	s.expect("user", s.run(ctx, "exec", "--user", "app", name, "id", "-un"), `exit 0 "app\n"`)
	s.expect("directory", s.run(ctx, "exec", "--workdir", "/tmp", name, "pwd"), `exit 0 "/tmp\n"`)
	s.expect("environment", s.run(ctx, "exec", "-e", "B=b", name, "sh", "-c", "echo $A, $B"), `exit 0 "of the container, b\n"`)
	s.expect("detached", s.run(ctx, "exec", "-d", name, "sh", "-c", "echo done >/tmp/file").code, "0")
	s.expect("detached: what it did", s.eventually(ctx, "done", func() string {
		return s.run(ctx, "exec", name, "cat", "/tmp/file").out()
	}), "done")
	if has(s.engine, Privileged) {
		s.note("privileged", s.run(ctx, "exec", "--privileged", name, "grep", "CapEff", "/proc/self/status"))
	}
	s.note("not privileged", s.run(ctx, "exec", name, "grep", "CapEff", "/proc/self/status"))
	s.run(ctx, "stop", "-t", "0", name)
	s.expect("after the end", s.run(ctx, "exec", name, "true").code != 0, "true")
}

func playTop(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1234 & sleep 4321; true") {
		return
	}
	r := s.run(ctx, "top", name)
	s.expect("exit", r.code, "0")
	s.expect("the container's processes", strings.Contains(r.stdout, "sleep 1234") && strings.Contains(r.stdout, "sleep 4321"), "true")
	s.expect("no other's", strings.Contains(r.stdout, "qemu") || strings.Contains(r.stdout, "containerd"), "false")
}

func playStats(ctx context.Context, s *stage) {
	name := s.container("main")
	if !s.start(ctx, name, "sleep 1000", "--memory", "64m") {
		return
	}
	r := s.run(ctx, "stats", "--no-stream", "--format", "{{.Name}}|{{.MemUsage}}|{{.PIDs}}", name)
	fields := strings.Split(r.out(), "|")
	s.expect("exit", r.code, "0")
	s.expect("fields", len(fields), "3")
	if len(fields) != 3 {
		return
	}
	s.expect("name", strings.Contains(name, fields[0]) || fields[0] != "", "true")
	used, limit, _ := strings.Cut(fields[1], " / ")
	s.note("memory limit", limit)
	s.expect("memory used", amount(used) > 0, "true")
	s.expect("processes", amount(fields[2]) > 0, "true")
}

// amount returns the number at the beginning of text, or 0.
func amount(text string) float64 {
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.", r) })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.ParseFloat(text[:end], 64)
	if err != nil {
		return 0
	}
	return n
}
