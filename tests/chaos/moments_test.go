package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// moment is a time in a pod's life at which the victim dies.
type moment struct {
	name string
	// play brings the scene to the moment, strikes, and returns once the
	// operation under way has returned. Only a failure to get there, or a
	// hanging operation, is an error.
	play func(context.Context, *scene) error
	// empty is set if no process of a container runs in the guest yet.
	empty bool
	// configure changes the pod's configuration, if it is set.
	configure func(*testing.T, *harness.Daemon)
	// saves is set if the machine is saved or restored: only the shim can serve
	// its share, and only containerd 2.x passes on which directory the caller wants.
	saves bool
}

// moments are the rows of the table.
var moments = []moment{
	{name: "starting", play: playStarting, empty: true},
	{name: "boot", play: playBoot, empty: true},
	{name: "created", play: playCreated, empty: true},
	{name: "creating service", play: playCreatingService},
	{name: "running", play: playRunning},
	{name: "starting exec", play: playStartingExec},
	{name: "exec running", play: playExecRunning},
	{name: "output", play: playOutput},
	{name: "exit", play: playExit},
	{name: "exec ends", play: playExecEnds},
	{name: "being killed", play: playBeingKilled},
	{name: "deleting", play: playDeleting},
	{name: "removing pod", play: playRemoving},
	{name: "hibernating", play: playHibernating, configure: hibernating},
	{name: "waking", play: playWaking, configure: hibernating},
	{name: "saving", play: playSaving, configure: saving, saves: true},
	{name: "restoring saved", play: playRestoringSaved, configure: saving, saves: true},
}

// restoring is an additional moment, if pods start from templates.
var restoring = moment{name: "restoring", play: playRestoring, empty: true}

const (
	// bootSpan is how long after its VM's process a pod may be struck while it boots,
	// and restoreSpan while a template is being loaded.
	bootSpan, restoreSpan = time.Second, 200 * time.Millisecond
	// startSpan is how long after its shim a pod may be struck: before its VM has a
	// process, or just then.
	startSpan = 300 * time.Millisecond
)

// idle is a service that does nothing.
var idle = harness.ContainerConfig{Name: "idle", Args: []string{"sleep", "100000"}}

// playStarting strikes while the pod's shim makes what it needs on the host.
func playStarting(ctx context.Context, s *scene) error {
	return playNewPod(ctx, s, harness.KindShim, startSpan)
}

// playBoot strikes while the pod's VM boots.
func playBoot(ctx context.Context, s *scene) error {
	return playNewPod(ctx, s, harness.KindVMM, bootSpan)
}

// playRestoring strikes while the pod's VM loads its template.
func playRestoring(ctx context.Context, s *scene) error {
	return playNewPod(ctx, s, harness.KindVMM, restoreSpan)
}

// playNewPod strikes while a pod is made, within span of the first process of a
// kind.
func playNewPod(ctx context.Context, s *scene, kind string, span time.Duration) error {
	type made struct {
		pod *harness.Pod
		err error
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	answered := make(chan made, 1)
	go func() {
		pod, err := s.d.NewPod(ctx, "pod")
		answered <- made{pod, err}
	}()
	if err := awaitKind(ctx, s.d, kind); err != nil {
		return err
	}
	time.Sleep(time.Duration(s.random.Int64N(int64(span)))) // at a random point in it
	err := s.strike(ctx)
	defer s.loseInterest(giveUp)()
	select {
	case m := <-answered:
		if m.err != nil && s.victim.passes {
			return errors.Join(err, fmt.Errorf("make pod, though nothing died: %w", m.err))
		}
		if m.err == nil { // the boot was faster, or the second one has succeeded
			s.adopt(m.pod)
			err = errors.Join(err, s.strikeAgain(ctx))
		}
		return err
	case <-time.After(answerTimeout):
		return fmt.Errorf("the pod's creation had no answer within %v of the strike", answerTimeout)
	}
}

// strikeAgain kills the victim again: a pod that loses its machine while it
// starts from a template boots once more without one.
func (s *scene) strikeAgain(ctx context.Context) error {
	if !s.victim.takesVM || s.victim.takesShim {
		return nil
	}
	return s.strike(ctx)
}

func awaitKind(ctx context.Context, d *harness.Daemon, kind string) error {
	for {
		procs, err := find(d, kind)
		if err != nil || len(procs) > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a %s: %w", kind, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// playCreated strikes between the create and the start of the first container.
func playCreated(ctx context.Context, s *scene) error {
	c, err := s.d.Create(ctx, harness.ContainerConfig{Name: "alone", Args: idle.Args})
	if err != nil {
		return err
	}
	s.cast(actor{name: "alone", container: c.Box.ID(), process: &c.Process})
	answer, err := s.during(ctx, 20*time.Millisecond, func(context.Context) error { return nil })
	if answer != nil || err != nil {
		return err
	}
	if s.victim.takesVM {
		ctx, giveUp := context.WithCancel(ctx)
		defer giveUp()
		defer s.loseInterest(giveUp)()
		// The start may succeed if the strike was not noticed yet.
		s.last().started = c.Start(ctx) == nil
	}
	return nil
}

// playCreatingService strikes while a service container is made and started.
func playCreatingService(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	_, err := s.during(ctx, 400*time.Millisecond, func(ctx context.Context) error {
		_, err := s.service(ctx, idle)
		return err
	})
	return err
}

func playRunning(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	if _, err := s.service(ctx, idle); err != nil {
		return err
	}
	return s.strike(ctx)
}

// exec adds and starts a process. stdin may be nil.
func (s *scene) exec(ctx context.Context, c *harness.Container, stdin io.Reader, text string) (*harness.Process, error) {
	p, err := c.Exec(ctx, harness.ExecConfig{Args: script(text), Stdio: harness.Stdio{Stdin: stdin}})
	if err != nil {
		return nil, err
	}
	a := actor{name: "exec", container: c.Box.ID(), id: p.ID(), process: p, exec: true}
	err = p.Start(ctx)
	a.started = err == nil
	s.cast(a)
	return p, err
}

// playStartingExec strikes while a process is added and started.
func playStartingExec(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	c, err := s.service(ctx, idle)
	if err != nil {
		return err
	}
	_, err = s.during(ctx, 150*time.Millisecond, func(ctx context.Context) error {
		_, err := s.exec(ctx, c, nil, "sleep 100000")
		return err
	})
	return err
}

func playExecRunning(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	c, err := s.service(ctx, idle)
	if err != nil {
		return err
	}
	p, err := s.exec(ctx, c, nil, "echo ready; sleep 100000")
	if err != nil {
		return err
	}
	if err := p.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	return s.strike(ctx)
}

// meter counts the bytes written to it and signals when there are enough.
type meter struct {
	left   int
	enough chan struct{}
}

func (m *meter) Write(p []byte) (int, error) {
	if m.left > 0 && m.left <= len(p) {
		close(m.enough)
	}
	m.left -= len(p)
	return len(p), nil
}

// playOutput strikes while a container writes as fast as it can.
func playOutput(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	m := &meter{left: 1 + s.random.IntN(1<<20), enough: make(chan struct{})}
	loud := harness.ContainerConfig{Name: "loud", Args: []string{"yes", "much to say"}, Stdio: harness.Stdio{Stdout: m}}
	if _, err := s.service(ctx, loud); err != nil {
		return err
	}
	select {
	case <-m.enough:
		return s.strike(ctx)
	case <-ctx.Done():
		return fmt.Errorf("wait for output: %w", ctx.Err())
	}
}

// playExit strikes while a process ends by itself.
func playExit(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	r, w := io.Pipe()
	const code = 3
	mortal := harness.ContainerConfig{
		Name: "mortal", Args: script(fmt.Sprintf("echo ready; read word; exit %d", code)), Stdio: harness.Stdio{Stdin: r},
	}
	c, err := s.service(ctx, mortal, code)
	if err != nil {
		return err
	}
	if err := c.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	_, err = s.during(ctx, 40*time.Millisecond, func(context.Context) error {
		_, err := w.Write([]byte("die\n"))
		return err
	})
	return err
}

// playDeleting strikes while a container that has ended is deleted.
func playDeleting(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	const code = 4
	c, err := s.service(ctx, harness.ContainerConfig{Name: "ended", Args: script(fmt.Sprintf("exit %d", code))}, code)
	if err != nil {
		return err
	}
	if _, err := c.Wait(ctx); err != nil {
		return err
	}
	s.last().ended, s.last().waited = true, true
	_, err = s.during(ctx, 60*time.Millisecond, c.Remove)
	return err
}

// playRemoving strikes while the pod is removed, from its services on.
func playRemoving(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	if _, err := s.service(ctx, idle); err != nil {
		return err
	}
	for _, a := range s.actors {
		a.codes, a.ended = append(a.codes, killed), true
	}
	_, err := s.during(ctx, time.Second, s.pod.Remove)
	return err
}
