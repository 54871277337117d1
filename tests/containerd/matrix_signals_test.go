package containerd

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// signalScenes send signals, and check exits and how they are reported.
func signalScenes() []scene {
	return []scene{
		{"signals to init", playSignals},
		{"signals to exec", playExecSignals},
		{"SIGTERM without a handler", playUnhandled},
		{"kill all", playKillAll},
		{"exit codes", playCodes},
		{"waiters", playWaiters},
	}
}

// trapper prints which signals it receives. busybox's shell knows realtime
// signals only by number; 35 is SIGRTMIN+1 as glibc and musl count.
const trapper = `for n in 1 10 15 28 35; do trap "echo got $n" $n; done; echo ready; while :; do sleep 0.05; done`

// sent are signals that trapper handles, in the order in which they are sent.
var sent = []uint32{uint32(unix.SIGHUP), uint32(unix.SIGUSR1), uint32(unix.SIGTERM), uint32(unix.SIGWINCH), 35}

func playSignals(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(trapper)})
	s.says(ctx, &c.Process, "ready")
	for _, n := range sent {
		_, err := s.order(ctx, "Kill", &task.KillRequest{ID: c.Box.ID(), Signal: n})
		s.note(fmt.Sprint("send ", n), "%s", kind(err))
		s.says(ctx, &c.Process, fmt.Sprintf("got %d\n", n))
	}
	s.note("killed", "%d", s.end(ctx, &c.Process))
	s.note("each came once", "%q", c.Out.String())
}

func playExecSignals(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(trapper)})
	s.says(ctx, &c.Process, "ready")
	e := s.exec(ctx, c, harness.ExecConfig{Args: script(trapper)})
	s.says(ctx, e, "ready")
	for _, n := range sent {
		_, err := s.order(ctx, "Kill", &task.KillRequest{ID: c.Box.ID(), ExecID: e.ID(), Signal: n})
		s.note(fmt.Sprint("send ", n), "%s", kind(err))
		s.says(ctx, e, fmt.Sprintf("got %d\n", n))
	}
	for _, n := range []uint32{9, 15, 6, 36} {
		x := s.exec(ctx, c, harness.ExecConfig{Args: script("echo ready; exec sleep 1000")})
		s.says(ctx, x, "ready")
		_, err := s.order(ctx, "Kill", &task.KillRequest{ID: c.Box.ID(), ExecID: x.ID(), Signal: n})
		s.note(fmt.Sprint("end by ", n), "%s, %s", kind(err), s.code(ctx, x))
	}
	s.note("killed", "%d", s.end(ctx, e))
	s.note("init got none", "%q", c.Out.String())
}

// playUnhandled sends SIGTERM to an init without a handler: the kernel drops
// it (pid_namespaces(7)). runc's own init, which runs until it executes the
// program, has one and dies of it: so first wait for the program's output.
func playUnhandled(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script("echo ready; exec sleep 100000")})
	s.says(ctx, &c.Process, "ready")
	s.note("send", "%s", kind(c.Task.Kill(ctx, 15)))
	s.note("State", "%s", s.do(ctx, "State", target{id: c.Box.ID()}))
	e := s.exec(ctx, c, harness.ExecConfig{Args: script("kill -9 1; kill -15 1; echo tried")})
	s.note("from inside", "%s %q", s.code(ctx, e), e.Out)
	s.note("killed", "%d", s.end(ctx, &c.Process))
}

func playKillAll(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(trapper)})
	s.says(ctx, &c.Process, "ready")
	e := s.exec(ctx, c, harness.ExecConfig{Args: script(trapper)})
	s.says(ctx, e, "ready")
	_, err := s.order(ctx, "Kill", &task.KillRequest{ID: c.Box.ID(), Signal: uint32(unix.SIGUSR1), All: true})
	s.note("send", "%s", kind(err))
	s.says(ctx, &c.Process, "got 10")
	s.says(ctx, e, "got 10")
	_, err = s.order(ctx, "Kill", &task.KillRequest{ID: c.Box.ID(), Signal: 9, All: true})
	s.note("kill", "%s", kind(err))
	s.note("exits", "exec %s, init %s", s.code(ctx, e), s.code(ctx, &c.Process))
	s.note("events", "%s", s.events(ctx, c, "exit(init)"))
}

func playCodes(ctx context.Context, s *stage) {
	for _, text := range []string{"exit 0", "exit 1", "exit 127", "exit 255", "exit 256", "kill -TERM $$", "(exit 3) & wait $!"} {
		c := s.run(ctx, harness.ContainerConfig{Args: script(`sh -c 'trap : TERM; ` + text + `'`)})
		s.note("init "+text, "%s", s.code(ctx, &c.Process))
	}
	c := s.sleeper(ctx)
	for _, text := range []string{"exit 0", "exit 255", "kill -TERM $$", "kill -KILL $$", "kill -ABRT $$"} {
		e := s.exec(ctx, c, harness.ExecConfig{Args: script(text)})
		s.note("exec "+text, "%s", s.code(ctx, e))
	}
}

// playWaiters makes several clients wait, before and after the exit.
func playWaiters(ctx context.Context, s *stage) {
	c := s.run(ctx, harness.ContainerConfig{Args: script(`trap "exit 21" TERM; echo ready; while :; do sleep 0.05; done`)})
	s.says(ctx, &c.Process, "ready")
	wait := func() string {
		var r task.WaitResponse
		err := s.call(ctx, "Wait", &task.WaitRequest{ID: c.Box.ID()}, &r)
		return fmt.Sprintf("%s %d", kind(err), r.ExitStatus)
	}
	answers := make([]string, 5)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = wait() })
	}
	s.must(c.Task.Kill(ctx, 15), "kill")
	s.note("init", "%s", s.code(ctx, &c.Process))
	group.Wait()
	s.note("at once", "%q", answers)
	s.note("afterwards", "%s", wait())
	s.note("events", "%s", s.events(ctx, c, "exit(init)"))
}
