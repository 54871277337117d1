package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/tests/harness"
)

// scene is one pod, its victim, and what must be reported about its processes.
// It is used by one goroutine.
type scene struct {
	t      *testing.T
	d      *harness.Daemon
	tape   *tape
	victim victim
	random *rand.Rand
	pod    *harness.Pod
	actors []*actor
	// bomb kills victims inside the guest.
	bomb io.Writer
	// struck is when the victim was killed.
	struck time.Time
	// checks are what else must hold once everything is removed.
	checks []func(context.Context) error
}

// actor is a process of the pod that was created.
type actor struct {
	name          string
	container, id string // as an exit event names it
	process       *harness.Process
	exec, started bool
	// codes are the exit codes with which it may end by itself.
	codes []uint32
	// ended is set if its exit may have been reported before the strike, waited
	// if its Wait has returned.
	ended, waited bool
	// unsure is set if the signal that should end it may not have reached it.
	unsure bool
}

// cast makes a process an actor. The exit of a started one must be reported.
func (s *scene) cast(a actor) {
	if a.id == "" {
		a.id = a.container
	}
	s.actors = append(s.actors, &a)
}

// last returns the latest actor.
func (s *scene) last() *actor { return s.actors[len(s.actors)-1] }

// openPod makes the pod, with its bomb if the victim needs one.
func (s *scene) openPod(ctx context.Context) error {
	pod, err := s.d.NewPod(ctx, "pod")
	if err != nil {
		return fmt.Errorf("make pod: %w", err)
	}
	s.adopt(pod)
	if s.victim.bomb == "" {
		return nil
	}
	r, w := io.Pipe()
	s.t.Cleanup(func() { _ = w.Close() })
	id := s.d.NewID("bomb")
	c, err := s.service(ctx, harness.ContainerConfig{
		Name: "bomb", ID: id, Args: script(s.victim.bombScript(id)), Spec: privileged(), Stdio: harness.Stdio{Stdin: r},
	})
	if err != nil {
		return err
	}
	s.bomb = w
	return c.Out.Await(ctx, "armed")
}

func (s *scene) adopt(pod *harness.Pod) {
	s.pod = pod
	s.cast(actor{name: "pause", container: pod.Sandbox.Box.ID(), process: &pod.Sandbox.Process, started: true})
}

// service adds and starts a service container.
func (s *scene) service(ctx context.Context, cfg harness.ContainerConfig, codes ...uint32) (*harness.Container, error) {
	c, err := s.pod.Add(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("add %s: %w", cfg.Name, err)
	}
	if err := c.Start(ctx); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	s.cast(actor{name: cfg.Name, container: c.Box.ID(), process: &c.Process, started: true, codes: codes})
	return c, nil
}

// strike kills the victim.
func (s *scene) strike(ctx context.Context) error {
	s.struck = time.Now()
	return s.victim.strike(ctx, s)
}

// during strikes at a random time within span after the operation began, and
// returns the operation's error once it has returned.
func (s *scene) during(ctx context.Context, span time.Duration, operation func(context.Context) error) (answer, err error) {
	return s.when(ctx, func(<-chan struct{}) error {
		time.Sleep(time.Duration(s.random.Int64N(int64(span)))) // the moment is a random one
		return nil
	}, operation)
}

// when strikes once await has returned, which may watch the operation and whether
// it was answered, and returns the operation's error once it has returned.
func (s *scene) when(ctx context.Context, await func(answered <-chan struct{}) error, operation func(context.Context) error) (answer, err error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		answer = operation(ctx)
	}()
	err = await(answered)
	if err == nil {
		err = s.strike(ctx)
	}
	if err != nil {
		<-answered
		return answer, err
	}
	defer s.loseInterest(giveUp)()
	select {
	case <-answered:
		if answer != nil && s.victim.passes {
			return answer, fmt.Errorf("the operation of the moment failed though nothing died: %w", answer)
		}
		return answer, nil
	case <-time.After(answerTimeout):
		<-answered
		return answer, fmt.Errorf("the operation of the moment had no answer within %v of the strike", answerTimeout)
	}
}

// loseInterest has the caller of an operation give up a while after its victim
// was stopped for good, as a kubelet does. The returned function ends the wait.
func (s *scene) loseInterest(giveUp func()) (stop func() bool) {
	if !s.victim.stays {
		return func() bool { return false }
	}
	return time.AfterFunc(stopSpan, giveUp).Stop
}

const (
	// answerTimeout bounds every call after the strike: longer than any of the
	// shim's timeouts that may be involved.
	answerTimeout = 90 * time.Second
	// removeTimeout bounds the removal of a pod of which a part does not answer.
	removeTimeout = 30 * time.Second
)

// cleanUp does what a user would do: delete tasks, then containers, and repeat
// while containerd is still handling the death of a shim, or a call that its
// caller gave up.
func (s *scene) cleanUp(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := s.cleanUpOnce(ctx)
		if err == nil || !s.victim.takesShim && !s.victim.stays || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cleanUpOnce removes the actors, and what is known to containerd only. Execs in
// a guest that does not answer end with their containers.
func (s *scene) cleanUpOnce(ctx context.Context) error {
	var errs []error
	actors := s.actors
	if s.victim.stays {
		isExec := func(a *actor) bool { return a.exec }
		execs := slices.DeleteFunc(slices.Clone(actors), func(a *actor) bool { return !isExec(a) })
		actors = slices.Concat(execs, slices.DeleteFunc(slices.Clone(actors), isExec))
	}
	for _, a := range slices.Backward(actors) {
		if err := a.process.Remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", a.name, err))
		}
	}
	boxes, err := s.d.Client.Containers(ctx)
	errs = append(errs, err)
	for _, box := range boxes {
		if err := removeBox(ctx, box); err != nil {
			errs = append(errs, fmt.Errorf("remove container %s: %w", box.ID(), err))
		}
	}
	return errors.Join(errs...)
}

// removeBox removes a container and the task that it may still have.
func removeBox(ctx context.Context, box client.Container) error {
	task, err := box.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, client.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if err := box.Delete(ctx, client.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}

// script returns a container's or exec's command line.
func script(text string) []string { return []string{"sh", "-c", text} }
