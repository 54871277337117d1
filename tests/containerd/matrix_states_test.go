package containerd

import (
	"context"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// stateScenes call every method on an init in every state.
func stateScenes() []scene {
	return []scene{
		{"init", playInit},
		{"terminal", playTerminal},
		{"delete before start", playDeleteCreated},
		{"killed before start", func(ctx context.Context, s *stage) { playKillCreated(ctx, s, 9) }},
		{"ended before start", func(ctx context.Context, s *stage) { playKillCreated(ctx, s, 15) }},
		{"killed while paused", playKillPaused},
		{"frozen", playFrozen},
		{"no program", playNoProgram},
	}
}

func playInit(ctx context.Context, s *stage) {
	s.probe(ctx, "absent", target{id: "no-such-container"})
	c := s.create(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}})
	at := target{id: c.Box.ID()}
	s.probe(ctx, "created", at, "Start", "Delete")
	s.must(c.Start(ctx), "start container")
	s.probe(ctx, "running", at, "Pause")
	s.note("pause", "%s", s.do(ctx, "Pause", at))
	s.probe(ctx, "paused", at, "Resume", "Update", "Kill 0 all")
	s.note("resume", "%s", s.do(ctx, "Resume", at))
	s.note("running again State", "%s", s.do(ctx, "State", at))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.probe(ctx, "stopped", at, "Delete")
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
	s.note("events", "%s", s.events(ctx, c, "delete"))
	s.probe(ctx, "deleted", at)
}

// playTerminal checks what a terminal changes.
func playTerminal(ctx context.Context, s *stage) {
	c := s.create(ctx, harness.ContainerConfig{Args: script(`stty size; read x; stty size; echo got $x; exit 3`), Stdio: harness.Stdio{
		TTY: true, Stdin: blocked{},
	}})
	at := target{id: c.Box.ID()}
	s.note("created State", "%s", s.do(ctx, "State", at))
	s.note("created ResizePty", "%s", s.do(ctx, "ResizePty", at))
	s.must(c.Start(ctx), "start container")
	s.says(ctx, &c.Process, "\n")
	s.note("resize", "%s", kind(c.Task.Resize(ctx, 101, 43)))
	s.note("close", "%s", s.do(ctx, "CloseIO", at))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("stopped ResizePty", "%s", s.do(ctx, "ResizePty", at))
	s.note("output", "%q", strings.TrimSpace(c.Out.String()))
	other := s.sleeper(ctx)
	e := s.addExec(ctx, other, harness.ExecConfig{Args: script("stty size; exit 3"), Stdio: harness.Stdio{TTY: true}})
	s.note("exec ResizePty before the start", "%s", s.do(ctx, "ResizePty", target{other.Box.ID(), e.ID()}))
	s.must(e.Start(ctx), "start exec")
	s.note("exec", "%s %q", s.code(ctx, e), e.Out)
}

// blocked is a stdin without any input.
type blocked struct{}

func (blocked) Read([]byte) (int, error) { select {} }

func playDeleteCreated(ctx context.Context, s *stage) {
	c := s.create(ctx, harness.ContainerConfig{Args: []string{"true"}})
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, target{id: c.Box.ID()})))
	s.events(ctx, c, "delete")
	s.note("events", "%s", sorted(s.events(ctx, c, "exit(init)")))
}

// playKillCreated signals an init that waits for its start.
func playKillCreated(ctx context.Context, s *stage, signal syscall.Signal) {
	c := s.create(ctx, harness.ContainerConfig{Args: []string{"true"}})
	at := target{id: c.Box.ID()}
	s.note("kill", "%s", kind(c.Task.Kill(ctx, signal)))
	s.events(ctx, c, "exit(init)")
	s.note("State", "%s", s.do(ctx, "State", at))
	s.note("Start", "%s", s.do(ctx, "Start", at))
	s.note("Kill 0", "%s", s.do(ctx, "Kill 0", at))
	s.note("Wait", "%s", s.do(ctx, "Wait", at))
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
	s.note("events", "%s", s.events(ctx, c, "delete"))
}

func playKillPaused(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	at := target{id: c.Box.ID()}
	s.note("pause", "%s", s.do(ctx, "Pause", at))
	s.note("delete", "%s", s.do(ctx, "Delete", at))
	s.note("kill", "%s", kind(c.Task.Kill(ctx, 9)))
	s.note("exit", "%s", s.code(ctx, &c.Process))
	s.note("State", "%s", s.do(ctx, "State", at))
	s.note("delete after", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
	s.note("events", "%s", s.events(ctx, c, "delete"))
}

// playFrozen makes calls that must leave a frozen container frozen.
func playFrozen(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(trapper)})
	s.says(ctx, &c.Process, "ready")
	at := target{id: c.Box.ID()}
	s.note("pause", "%s", s.do(ctx, "Pause", at))
	s.note("update", "%s", s.do(ctx, "Update", at))
	s.must(c.Task.Kill(ctx, 10), "kill")
	s.note("frozen after update", "%t", s.silent(ctx, &c.Process, "got"))
	s.note("kill 0 all", "%s", s.do(ctx, "Kill 0 all", at))
	s.note("frozen after kill", "%t", s.silent(ctx, &c.Process, "got"))
	s.note("resume", "%s", s.do(ctx, "Resume", at))
	s.says(ctx, &c.Process, "got 10")
	s.note("killed", "%d", s.end(ctx, &c.Process))
}

// playNoProgram starts what cannot be started, as init and as exec.
func playNoProgram(ctx context.Context, s *stage) {
	c, err := s.pod.Add(ctx, harness.ContainerConfig{Name: "cast", Args: []string{"no-such-program"}})
	if err == nil {
		err = c.Start(ctx)
	}
	s.note("init", "%s", kind(err))
	used := s.sleeper(ctx)
	p := s.addExec(ctx, used, harness.ExecConfig{Args: []string{"no-such-program"}})
	at := target{used.Box.ID(), p.ID()}
	s.note("exec", "%s", kind(p.Start(ctx)))
	s.note("exec State", "%s", s.do(ctx, "State", at))
	s.note("exec Kill 0", "%s", s.do(ctx, "Kill 0", at))
	s.note("exec Delete", "%s", s.do(ctx, "Delete", at))
	wrong := s.addExec(ctx, used, harness.ExecConfig{Args: []string{"true"}, Spec: func(p *specs.Process) { p.Cwd = "/no/such/dir" }})
	s.note("exec in no directory", "%s", kind(wrong.Start(ctx)))
	s.note("killed", "%d", s.end(ctx, &used.Process))
	s.note("events", "%s", s.events(ctx, used, "exit(init)"))
}

// sorted sorts a list of words: for events that runc's shim sends in varying
// order.
func sorted(list string) string {
	parts := strings.Split(list, ", ")
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
