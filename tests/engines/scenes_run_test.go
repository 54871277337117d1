package engines

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"syscall"

	"github.com/katabox/katabox/tests/image"
)

// What a command's user sees: output, exit code, terminal, input, logs.
func runScenes() []scene {
	return []scene{
		{name: "run", short: true, play: playRun},
		{name: "exit codes", play: playExitCodes},
		{name: "terminal", short: true, play: playTerminal},
		{name: "input", play: playInput},
		{name: "logs", short: true, play: playLogs},
		{name: "process", play: playProcess},
	}
}

func playRun(ctx context.Context, s *stage) {
	s.expect("output", s.script(ctx, "echo out; echo err >&2"), `exit 0 "out\n"`)
	r := s.script(ctx, "echo err >&2; exit 3")
	s.expect("stderr", strings.Contains(r.stderr, "err\n"), "true")
}

func playExitCodes(ctx context.Context, s *stage) {
	for _, code := range []string{"0", "42", "125"} {
		s.expect("exit "+code, s.script(ctx, "exit "+code).code, code)
	}
	r := s.script(ctx, "sh -c 'kill -SEGV $$'; echo $?; exit 255")
	s.expect("exit 255", r.code, "255")
	s.expect("killed by its own signal", r.line(0), "139")
	s.note("no program", s.run(ctx, "run", "--rm", image.Busybox, "no-such-program").code)
	s.note("not executable", s.run(ctx, "run", "--rm", image.Busybox, "/etc/passwd").code)
	s.note("bad option", s.run(ctx, "run", "--rm", "--cap-add", "NO_SUCH_CAP", image.Busybox, "true").code)
	s.note("bad directory", s.run(ctx, "run", "--rm", "--workdir", "/etc/passwd", image.Busybox, "true").code)
	s.note("bad user", s.run(ctx, "run", "--rm", "--user", "nobody-here", image.Busybox, "true").code)
	s.expect("signal to the client", s.signalled(ctx, syscall.SIGTERM, "run", "--rm", image.Busybox, "sh", "-c",
		"trap 'exit 143' TERM; echo ready; while :; do sleep 0.1; done").code, "143")
}

func playTerminal(ctx context.Context, s *stage) {
	// The client sets the size when the container is already running. Until
	// then stty fails, though with exit code 0.
	r := s.terminal(ctx, "", "run", "-it", "--rm", image.Busybox, "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo all; "+
		"for i in $(seq 100); do stty size 2>/dev/null | grep . && break; sleep 0.1; done; exit 7")
	s.expect("run: exit", r.code, "7")
	s.expect("run: is one", strings.Contains(r.stdout, "all\r"), "true")
	if has(s.engine, TerminalSize) {
		s.expect("run: size", strings.Contains(r.stdout, "25 80\r"), "true")
	}
	r = s.terminal(ctx, "echo $((6*7)); exit 5\n", "run", "-it", "--rm", image.Busybox, "sh", "-c", "echo ready; exec sh")
	s.expect("typed: exit", r.code, "5")
	s.expect("typed: output", strings.Contains(r.stdout, "42\r"), "true")
	s.note("without input", s.script(ctx, "test -t 1", "-t").code)
}

func playInput(ctx context.Context, s *stage) {
	text := strings.Repeat("0123456789abcde\n", 1<<16)
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(text)))
	r := s.runWith(ctx, text, "run", "-i", "--rm", image.Busybox, "sha256sum")
	s.expect("a mebibyte in", r, fmt.Sprintf("exit 0 %q", sum))
	r = s.run(ctx, "run", "--rm", image.Busybox, "cat", image.BlobPath)
	s.expect("a mebibyte out", r.code == 0 && r.stdout == string(image.Blob()), "true")
	if has(s.engine, EmptyInput) {
		s.expect("none", s.runWith(ctx, "", "run", "-i", "--rm", image.Busybox, "wc", "-c"), `exit 0 "0\n"`)
	}
	s.expect("not attached", s.script(ctx, "wc -c"), `exit 0 "0\n"`)
}

func playLogs(ctx context.Context, s *stage) {
	name := s.container("lines")
	s.start(ctx, name, "for i in 1 2 3; do echo line $i; sleep 0.3; done; echo end >&2; exit 4")
	r := s.run(ctx, "logs", "-f", name)
	s.expect("followed", r, `exit 0 "line 1\nline 2\nline 3\n"`)
	s.expect("followed: stderr", strings.Contains(r.stderr, "end\n"), "true")
	s.expect("wait", s.run(ctx, "wait", name).out(), "4")
	s.expect("tail", s.run(ctx, "logs", "--tail", "1", name).code, "0")
	s.expect("state", s.inspect(ctx, name, "{{.State.Status}} {{.State.ExitCode}}"), "exited 4")

	if !has(s.engine, WholeLogs) {
		return
	}
	many := s.container("many")
	s.start(ctx, many, "seq 1 20000")
	s.expect("many: exit", s.run(ctx, "wait", many).out(), "0")
	s.expect("many: lines", s.eventually(ctx, "20000", func() string {
		return fmt.Sprint(strings.Count(s.run(ctx, "logs", many).stdout, "\n"))
	}), "20000")
}

func playProcess(ctx context.Context, s *stage) {
	s.expect("user", s.script(ctx, "id -u; id -g", "--user", "1000:37"), `exit 0 "1000\n37\n"`)
	// One container for all independent checks: each container is a boot.
	r := s.script(ctx, `id; pwd; echo "$A $B"; hostname; cat /proc/sys/kernel/hostname; exec cat /proc/1/comm`,
		"--user", "app", "--workdir", "/home/app", "-e", "A=one two", "-e", "B=$HOME", "--hostname", "boxed")
	s.expect("user by name", r.line(0), "uid=1000(app) gid=1000(app) groups=37(operator),1000(app)")
	s.expect("directory", r.line(1), "/home/app")
	s.expect("environment", r.line(2), "one two $HOME")
	s.expect("hostname", r.line(3)+" "+r.line(4), "boxed boxed")
	s.expect("without init", r.line(5), "cat")
	s.note("domain", s.script(ctx, "cat /proc/sys/kernel/domainname", "--domainname", "example.org"))
	s.note("groups", s.script(ctx, "id -G", "--user", "app", "--group-add", "4242"))
	s.expect("entrypoint", s.run(ctx, "run", "--rm", "--entrypoint", "/bin/echo", image.Busybox, "hi"), `exit 0 "hi\n"`)
	r = s.script(ctx, "cat /proc/1/comm; (true &); sleep 0.5; ps -o stat | grep -c Z", "--init")
	s.expect("init", r.line(0) != "" && r.line(0) != "cat" && r.line(0) != "sh", "true")
	s.note("init: name", r.line(0))
	s.expect("init reaps", r.line(1), "0")
}
