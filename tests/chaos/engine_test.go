package chaos

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// Exits while containerd is dead are reported when it is back: a service's and
// an exec's, each with its own code; the rest runs on.
func TestExitsWhileContainerdIsDead(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		s, c := newScene(ctx, t, d, engine)
		ends := s.twoThatEnd(ctx, c)
		if err := s.strike(ctx); err != nil {
			t.Fatal(err)
		}
		if err := ends.now(ctx); err != nil {
			t.Fatal(err)
		}
		s.judge(ctx)
		ends.reported(s)
	})
}

// longStop exceeds the timeouts of ordinary calls.
const longStop = 12 * time.Second

// Exits while containerd is stopped are reported once when it continues, however
// long that takes: what a shim had given up would be waiting in containerd's
// socket all the same.
func TestExitsWhileContainerdIsStopped(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		s, c := newScene(ctx, t, d, stoppedEngine)
		ends := s.twoThatEnd(ctx, c)
		err := whileStopped(d, func() error {
			err := ends.now(ctx)
			time.Sleep(longStop) // that long the events wait
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.judge(ctx)
		ends.reported(s)
	})
}

// mortals are a service that ends when it reads a word, and an exec that ends soon.
type mortals struct {
	codes map[*harness.Process]uint32
	word  io.Writer
}

// twoThatEnd adds a service, and an exec that ends a second later without the
// engine's help.
func (s *scene) twoThatEnd(ctx context.Context, c *harness.Container) mortals {
	s.t.Helper()
	words, word := io.Pipe()
	mortal := harness.ContainerConfig{
		Name: "mortal", Args: script("echo ready; read word; exit 3"), Stdio: harness.Stdio{Stdin: words},
	}
	service, err := s.service(ctx, mortal, 3)
	if err != nil {
		s.t.Fatal(err)
	}
	exec, err := s.exec(ctx, c, nil, "echo ready; while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 7")
	if err != nil {
		s.t.Fatal(err)
	}
	s.last().codes = []uint32{7}
	for _, p := range []*harness.Process{&service.Process, exec} {
		if err := p.Out.Await(ctx, "ready"); err != nil {
			s.t.Fatal(err)
		}
	}
	_, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("(sleep 1; touch /tmp/go) </dev/null >/dev/null 2>&1 &")})
	if err != nil || code != 0 {
		s.t.Fatalf("exec ended with %d, %v", code, err)
	}
	return mortals{codes: map[*harness.Process]uint32{&service.Process: 3, exec: 7}, word: word}
}

// now ends the service, and returns when both have exited.
func (m mortals) now(ctx context.Context) error {
	if _, err := m.word.Write([]byte("die\n")); err != nil {
		return err
	}
	for p := range m.codes {
		if err := outputEnds(ctx, p); err != nil { // by then it has exited
			return err
		}
	}
	return nil
}

// reported checks that each exit was reported once.
func (m mortals) reported(s *scene) {
	s.t.Helper()
	for p, want := range m.codes {
		if err := s.toldOnce(p, want); err != nil {
			s.t.Error(err)
		}
	}
}

// outputEnds waits until the runtime has closed a process's output.
func outputEnds(ctx context.Context, p *harness.Process) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.IO().Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s's output: %w", p.ID(), ctx.Err())
	}
}

// toldOnce checks that an actor has exactly one exit event, with that code.
func (s *scene) toldOnce(p *harness.Process, want uint32) error {
	for _, a := range s.actors {
		if a.process != p {
			continue
		}
		if codes := s.tape.codes(a.container, a.id); len(codes) != 1 || codes[0] != want {
			return fmt.Errorf("%s: exit events with the codes %v, want one %d", a.name, codes, want)
		}
		return nil
	}
	return fmt.Errorf("%s is no actor", p.ID())
}

// Both die, the shim while containerd is dead: containerd, when it is back,
// finds a bundle without a shim, and cleans up.
func TestShimDiesWhileContainerdIsDead(t *testing.T) {
	eachRelease(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		s, _ := newScene(ctx, t, d, engine)
		if err := s.strike(ctx); err != nil {
			t.Fatal(err)
		}
		s.victim = shim
		if err := s.strike(ctx); err != nil {
			t.Error(err)
		}
		for _, a := range s.actors { // each Wait returns
			if err := s.judgeWait(ctx, a); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		}
		if err := s.revive(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.cleanUp(ctx, answerTimeout); err != nil {
			t.Error(err)
		}
	})
}
