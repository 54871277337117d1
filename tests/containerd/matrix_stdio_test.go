package containerd

import (
	"context"
	"strings"

	"github.com/katabox/katabox/tests/harness"
)

// stdioScenes test input and output.
func stdioScenes() []scene {
	return []scene{
		{"stdin", playStdin},
		{"output", playOutput},
	}
}

func playStdin(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{
		Args: script(`cat; echo end`), Stdio: harness.Stdio{Stdin: strings.NewReader("a line\nhalf")},
	})
	s.note("to its end", "%s %q", s.code(ctx, &c.Process), c.Out)
	early := s.run(ctx, harness.ContainerConfig{
		Args:  script(`trap "exit 2" TERM; exec <&-; echo closed; while :; do sleep 0.05; done`),
		Stdio: harness.Stdio{Stdin: strings.NewReader(strings.Repeat("this is not read\n", 8000))},
	})
	s.says(ctx, &early.Process, "closed")
	s.note("CloseIO of a process that closed it", "%s", s.do(ctx, "CloseIO", target{id: early.Box.ID()}))
	s.must(early.Task.Kill(ctx, 15), "kill")
	s.note("exit of a process that closed it", "%s", s.code(ctx, &early.Process))
	idle := s.run(ctx, harness.ContainerConfig{Args: script(`cat; echo end`), Stdio: harness.Stdio{Stdin: blocked{}}})
	at := target{id: idle.Box.ID()}
	s.note("CloseIO", "%s", s.do(ctx, "CloseIO", at))
	s.note("CloseIO again", "%s", s.do(ctx, "CloseIO", at))
	s.note("CloseIO while the engine holds its end", "%s", s.soon(ctx, &idle.Process))
	none := s.run(ctx, harness.ContainerConfig{Args: script(`cat; echo end; ls -l /proc/self/fd/0 | sed "s/.*-> //"`)})
	s.note("none given", "%s %q", s.code(ctx, &none.Process), none.Out)
	s.playExecStdin(ctx)
}

func (s *stage) playExecStdin(ctx context.Context) {
	c := s.sleeper(ctx)
	e := s.exec(ctx, c, harness.ExecConfig{Args: script("cat; exit 9"), Stdio: harness.Stdio{Stdin: strings.NewReader("for exec")}})
	s.note("of an exec", "%s %q", s.code(ctx, e), e.Out)
	t := s.exec(ctx, c, harness.ExecConfig{Args: []string{"sleep", "100000"}, Stdio: harness.Stdio{TTY: true, Stdin: strings.NewReader("")}})
	s.note("end of a terminal's", "%s", s.soon(ctx, t))
}

// playOutput writes to both streams, without an end of line, and from a
// process that outlives its parent.
func playOutput(ctx context.Context, s *stage) {
	for _, row := range []struct{ name, script string }{
		{"both", "echo out; echo err >&2; printf tail; exit 4"},
		{"none", "exit 0"},
		{"closed", "exec >&- 2>&-; echo lost; exit 5"},
		{"many lines", "i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done | tail -n 2"},
		{"environment", "echo $HOME $PATH $TERM; pwd; id -u; umask"},
	} {
		c := s.run(ctx, harness.ContainerConfig{Args: script(row.script)})
		s.note("init "+row.name, "%s %q %q", s.code(ctx, &c.Process), c.Out, c.Err)
	}
	c := s.sleeper(ctx)
	for _, row := range []struct{ name, script string }{
		{"both", "echo out; echo err >&2; printf tail; exit 4"},
		{"environment", "echo $HOME $PATH $TERM; pwd; id -u; umask"},
		{"of a child that stays", "(sleep 0.3; echo late) & echo early; exit 6"},
	} {
		e := s.exec(ctx, c, harness.ExecConfig{Args: script(row.script)})
		s.note("exec "+row.name, "%s %q %q", s.code(ctx, e), e.Out, e.Err)
	}
	t := s.exec(ctx, c, harness.ExecConfig{Args: script("echo out; echo err >&2; tty; exit 4"), Stdio: harness.Stdio{TTY: true}})
	s.note("exec on a terminal", "%s %q %q", s.code(ctx, t), t.Out, t.Err)
}
