package virtcontainers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

// quickSleeper is a sleeper whose guest has 1.2 s to end a container.
func quickSleeper(t *testing.T) *sleeper {
	t.Helper()
	return sleeperOn(t, newHost(t), func(o *virtcontainers.Options) {
		o.Config.Agent.KillTimeout = 200 * time.Millisecond
		o.Config.Agent.HealthTimeout = time.Second
	})
}

// silence has the machine answer nothing any more, and returns a channel that has
// a value when it is asked.
func (s *sleeper) silence() (asked chan fake.Step) {
	asked = make(chan fake.Step, 10)
	for _, step := range []fake.Step{fake.StepPause, fake.StepResume, fake.StepAnswer} {
		s.host.Monitor.Hook(step, func(ctx context.Context, _ *fake.VM) error {
			asked <- step
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
	return asked
}

// The pod of a container that got SIGKILL is lost if it does not wake, or does not
// fall asleep, because its machine answers nothing.
func TestKillWhenMachineIsSilent(t *testing.T) {
	for name, begin := range map[string]func(s *sleeper){
		"falling asleep": func(s *sleeper) {
			asked := s.silence()
			go func() { _, _ = s.Hibernate(context.Background()) }()
			<-asked
		},
		"asleep": func(s *sleeper) {
			s.sleeps()
			s.silence()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			s := quickSleeper(t)
			c := s.container("c1")
			begin(s)
			ended := make(chan error, 1)
			go func() { ended <- initOf(t, c).Kill(t.Context(), uint32(unix.SIGKILL), true) }()
			s.awaitStopped()
			s.observer.expect(t, "c1=255")
			if err := await(t, "the kill's end", ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// A machine that answers may take its time to wake.
func TestKillWhenMachineIsSlow(t *testing.T) {
	t.Parallel() // it waits
	s := quickSleeper(t)
	c := s.container("c1")
	s.sleeps()
	asked, resume := make(chan struct{}, 10), make(chan struct{})
	s.host.Monitor.Hook(fake.StepAnswer, func(context.Context, *fake.VM) error {
		asked <- struct{}{}
		return nil
	})
	s.host.Monitor.Hook(fake.StepResume, func(context.Context, *fake.VM) error {
		<-resume
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- initOf(t, c).Kill(t.Context(), uint32(unix.SIGKILL), true) }()
	for range 2 {
		<-asked
	}
	close(resume)
	if err := await(t, "the kill's end", ended); err != nil {
		t.Error(err)
	}
	s.observer.expect(t, "c1=137")
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A SIGKILL whose caller does not wait until the pod has woken ends the container, and
// no other.
func TestKillGivenUpWhileAsleep(t *testing.T) {
	t.Parallel() // it waits
	s := quickSleeper(t)
	c, other := s.container("c1"), s.run("c2")
	s.sleeps()
	resume := make(chan struct{})
	s.host.Monitor.Hook(fake.StepResume, func(context.Context, *fake.VM) error {
		<-resume
		return nil
	})
	sent := make(chan struct{})
	note := sync.OnceFunc(func() { close(sent) })
	s.host.Agent.Hook("Kill", func(context.Context, proto.Message) error {
		note()
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := initOf(t, c).Kill(ctx, uint32(unix.SIGKILL), true); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("killed a container whose pod does not wake: %v", err)
	}
	close(resume)
	await(t, "the guest's SIGKILL", sent)
	if status := statusOf(t, initOf(t, c)); status != 137 {
		t.Errorf("exit status %d, want 137", status)
	}
	s.observer.expect(t, "c1=137")
	if state := other.Info().State; state != virtcontainers.Running {
		t.Errorf("the other container is %v", state)
	}
}
