package containerd

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/tests/harness"
)

// execScenes call every method on an exec in every state, and check execs when
// their container changes.
func execScenes() []scene {
	return []scene{
		{"exec", playExec},
		{"exec in a created container", playExecCreated},
		{"exec while paused", playExecPaused},
		{"execs of an init that exits", playExecsEnd},
		{"exec pids", playPids},
		{"exec of an odd id", playOddExec},
	}
}

func playExec(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	at := target{c.Box.ID(), "e1"}
	s.probe(ctx, "absent", at)
	s.probe(ctx, "of no container", target{"no-such-container", "e1"})
	p := s.addExec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 100000")})
	s.probe(ctx, "added", at, "Start", "Delete")
	s.must(p.Start(ctx), "start exec")
	s.says(ctx, p, "ready")
	s.probe(ctx, "running", at, "Start")
	s.startedTwice(ctx, at)
	s.note("same id", "%s", outcome(s.order(ctx, "Exec", &task.ExecProcessRequest{ID: at.id, ExecID: at.exec, Spec: command("true")})))
	s.note("killed", "%d", s.end(ctx, p))
	s.probe(ctx, "stopped", at, "Start", "Delete")
	s.startedTwice(ctx, at)
	s.note("delete", "%s", outcome(engineDelete(s.d.Context(ctx), s, at)))
	s.probe(ctx, "deleted", at)
	s.note("id used again", "%s", execOnce(ctx, c, "e1", "exit 4"))
	s.note("no spec", "%s", outcome(s.order(ctx, "Exec", &task.ExecProcessRequest{ID: at.id, ExecID: "nospec", Spec: &anypb.Any{}})))
	s.note("killed init", "%d", s.end(ctx, &c.Process))
	s.note("events", "%s", s.events(ctx, c, "exit(init)"))
}

// startedTwice makes a call that runc's shim of containerd 2.4 does not
// survive: it counts the exec twice and panics at its init's exit.
func (s *stage) startedTwice(ctx context.Context, at target) {
	s.t.Helper()
	if !s.d.Runtime().VM {
		return
	}
	if got := s.do(ctx, "Start", at); got != "FailedPrecondition" {
		s.t.Errorf("%s: a second start of an exec: %s", s.scene, got)
	}
}

// execOnce adds, starts, awaits and deletes an exec; the answer is its exit
// code or the first error.
func execOnce(ctx context.Context, c *harness.Container, id, text string) string {
	p, err := c.Task.Exec(ctx, id, &specs.Process{Args: script(text), Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}}, cio.NullIO)
	if err != nil {
		return "Exec " + kind(err)
	}
	exit, err := p.Wait(ctx)
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		_, gone := p.Delete(ctx)
		return "Start " + kind(err) + ", Delete " + kind(gone)
	}
	status := <-exit
	_, err = p.Delete(ctx)
	return fmt.Sprintf("exit %d, Delete %s", status.ExitCode(), kind(err))
}

func playExecCreated(ctx context.Context, s *stage) {
	c := s.create(ctx, harness.ContainerConfig{Args: []string{"sleep", "100000"}})
	s.note("run", "%s", execOnce(ctx, c, "early", "exit 7"))
	s.must(c.Start(ctx), "start container")
	s.note("after the start", "%s", execOnce(ctx, c, "later", "exit 8"))
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("run after the end", "%s", execOnce(ctx, c, "late", "exit 9"))
	s.note("events", "%s", s.events(ctx, c, "exit(init)"))
}

func playExecPaused(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	at := target{id: c.Box.ID()}
	before := s.addExec(ctx, c, harness.ExecConfig{Args: script("exit 6")})
	running := s.exec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 100000")})
	s.says(ctx, running, "ready")
	s.must(c.Task.Pause(ctx), "pause")
	s.note("add", "%s", s.do(ctx, "Exec", at))
	s.note("State of a running one", "%s", s.do(ctx, "State", target{at.id, running.ID()}))
	s.note("Kill 0 of a running one", "%s", s.do(ctx, "Kill 0", target{at.id, running.ID()}))
	s.note("delete a running one", "%s", s.do(ctx, "Delete", target{at.id, running.ID()}))
	s.must(c.Task.Resume(ctx), "resume")
	s.note("killed", "%d", s.end(ctx, running))
	s.must(before.Start(ctx), "start exec")
	s.note("added before", "%s", s.code(ctx, before))
}

// playExecsEnd lets the init exit while execs run: they end first, and each has
// an exit event.
func playExecsEnd(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(`trap "exit 5" TERM; echo ready; while :; do sleep 0.1; done`)})
	s.says(ctx, &c.Process, "ready")
	e := s.exec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 100000")})
	s.says(ctx, e, "ready")
	waiting := s.addExec(ctx, c, harness.ExecConfig{Args: script("true")})
	s.must(c.Task.Kill(ctx, 15), "kill")
	s.note("init", "%s", s.code(ctx, &c.Process))
	s.note("exec", "%s", s.code(ctx, e))
	s.note("State of one never started", "%s", s.do(ctx, "State", target{c.Box.ID(), waiting.ID()}))
	s.note("Start of one never started", "%s", s.do(ctx, "Start", target{c.Box.ID(), waiting.ID()}))
	s.note("Delete of one that ended", "%s", s.do(ctx, "Delete", target{c.Box.ID(), e.ID()}))
	s.note("events", "%s", s.events(ctx, c, "exit(init)"))
}

func playOddExec(ctx context.Context, s *stage) {
	c := s.sleeper(ctx)
	s.note("add", "%s", outcome(s.order(ctx, "Exec", &task.ExecProcessRequest{ID: c.Box.ID(), ExecID: "a/b", Spec: command("true")})))
}

func playPids(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(`sleep 100000 & sleep 100000 & echo ready; wait`)})
	s.says(ctx, &c.Process, "ready")
	e := s.exec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 100000")})
	s.says(ctx, e, "ready")
	at := target{id: c.Box.ID()}
	s.note("three and an exec", "%s", s.do(ctx, "Pids", at))
	s.note("killed", "%d", s.end(ctx, e))
	s.note("three", "%s", s.do(ctx, "Pids", at))
}
