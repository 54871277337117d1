package virtcontainers_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
)

func TestPauseAndResume(t *testing.T) {
	p := newPod(t)
	c := p.create(sandboxID)
	never := func() { t.Error("a change that did not happen was announced") }
	wantError(t, "pause before the start", c.Pause(t.Context(), never), errdefs.IsFailedPrecondition, "created, want running")
	p.start(initOf(t, c))
	wantError(t, "resume while running", c.Resume(t.Context(), never), errdefs.IsFailedPrecondition, "running, want paused")
	p.host.Agent.Fail("Pause", errdefs.ErrNotImplemented)
	wantError(t, "pause that the agent refuses", c.Pause(t.Context(), never), errdefs.IsNotImplemented, "pause container pod")
	p.host.Agent.Fail("Pause", nil)

	announced := 0
	count := func() { announced++ }
	if err := c.Pause(t.Context(), count); err != nil || announced != 1 {
		t.Fatalf("announced %d: %v", announced, err)
	}
	if state := c.Info().State; state != virtcontainers.Paused {
		t.Errorf("state %s", state)
	}
	wantError(t, "pause again", c.Pause(t.Context(), never), errdefs.IsFailedPrecondition, "paused, want running")
	_, err := c.Exec(t.Context(), virtcontainers.ExecOptions{ID: "e", IO: newIO(virtcontainers.Streams{})})
	wantError(t, "exec while paused", err, errdefs.IsFailedPrecondition, "it is paused, want")
	if err := c.Resume(t.Context(), count); err != nil || announced != 2 || c.Info().State != virtcontainers.Running {
		t.Errorf("announced %d, state %s: %v", announced, c.Info().State, err)
	}
	if err := c.Pause(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	p.exits(sandboxID, "", 137) // also paused processes can be killed
	p.awaitStopped()
	p.observer.expect(t, "pod=137")
	wantError(t, "resume afterwards", c.Resume(t.Context(), never), errdefs.IsFailedPrecondition, "stopped, want paused")
}

// A container may end while it is being paused: its end stands.
func TestExitDuringPause(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	c := p.run("c1")
	p.host.Agent.After("Pause", func(context.Context, proto.Message) error {
		p.exits("c1", "", 1)
		statusOf(t, initOf(t, c))
		return nil
	})
	err := c.Pause(t.Context(), func() { t.Error("announced") })
	wantError(t, "pause", err, errdefs.IsFailedPrecondition, "stopped")
	if state := c.Info().State; state != virtcontainers.Stopped {
		t.Errorf("state %s", state)
	}
}

func TestUpdateAndStats(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	p.host.Agent.SetMetrics([]byte{0x0a, 2, 0x08, 3}) // pids, current: 3
	if stats, err := c.Stats(t.Context()); err != nil || stats.GetPids().GetCurrent() != 3 {
		t.Errorf("stats %v, %v", stats, err)
	}
	resources := &anypb.Any{Value: []byte(`{"pids":{"limit":7}}`)}
	if err := c.Update(t.Context(), resources); err != nil {
		t.Error(err)
	}
	p.host.Agent.Fail("Stats", errdefs.ErrInternal)
	p.host.Agent.Fail("Update", errdefs.ErrInvalidArgument)
	_, err := c.Stats(t.Context())
	wantError(t, "stats", err, errdefs.IsInternal, "container pod")
	wantError(t, "update", c.Update(t.Context(), resources), errdefs.IsInvalidArgument, "container pod")
	p.host.VM().Die(errDied)
	p.awaitStopped()
	_, err = c.Stats(t.Context())
	wantError(t, "stats afterwards", err, errdefs.IsUnavailable, errDied.Error())
	wantError(t, "update afterwards", c.Update(t.Context(), resources), errdefs.IsUnavailable, errDied.Error())
}

// checkStatsEnd checks that a question for statistics without a deadline ends soon, and
// says why.
func checkStatsEnd(t *testing.T, c *virtcontainers.Container) {
	t.Helper()
	began := time.Now()
	_, err := c.Stats(context.Background())
	wantError(t, "stats", err, errdefs.IsDeadlineExceeded, "the guest did not answer within 5s")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// An engine asks for the statistics of all its tasks one after the other: it does not
// wait long for a guest that does not answer, or that is saved to a slow disk.
func TestStatsDoNotWaitLong(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		p := newPod(t)
		c := p.run(sandboxID)
		p.host.Agent.Hang("Stats")
		checkStatsEnd(t, c)
	})
	t.Run("saved", func(t *testing.T) {
		t.Parallel()
		s := newSaver(t)
		s.host.Monitor.Hook(fake.StepSaveAll, func(context.Context, *fake.VM) error {
			checkStatsEnd(t, s.c)
			return nil
		})
		s.save()
	})
}

// The log names the limits of an update that the guest does not have, as at a
// container's creation.
func TestUpdateSaysWhatIsLost(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	for limits, want := range map[string]string{
		`{"pids":{"limit":7},"cpu":{"cpus":"0","quota":100000},"memory":{"limit":1048576,"kernel":-1}}`: "",
		`{"memory":{"swappiness":10}}`:                                                       "not given to the guest: [swappiness]",
		`{"memory":{"kernel":4096},"cpu":{"realtimeRuntime":950000}}`:                        "[CPU time of real-time processes the limits of kernel memory]",
		`{"blockIO":{"weight":10,"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":9}]}}`: "[weights and limits of single block devices]",
		`{"rdma":{"mlx5_0":{"hcaHandles":3}},"network":{"classID":5}}`:                       "[class and priorities of network traffic limits of RDMA]",
	} {
		ctx, lines := withLog(t.Context())
		if err := c.Update(ctx, &anypb.Any{Value: []byte(limits)}); err != nil {
			t.Errorf("%s: %v", limits, err)
		}
		if want == "" {
			if lines.count("not given") > 0 {
				t.Errorf("%s: logged\n%s", limits, lines.text.String())
			}
		} else if lines.count(want) != 1 {
			t.Errorf("%s: logged\n%s\nwant %s", limits, lines.text.String(), want)
		}
	}
	p.host.Agent.Fail("Update", errdefs.ErrInvalidArgument)
	ctx, lines := withLog(t.Context())
	if err := c.Update(ctx, &anypb.Any{Value: []byte(`{"memory":{"swappiness":10}}`)}); err == nil || lines.count("not given") > 0 {
		t.Errorf("an update that fails: %v, logged\n%s", err, lines.text.String())
	}
}

// A pause that the guest finishes when its caller has gone is undone.
func TestPauseAnsweredTooLate(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	never := func() { t.Error("a change that did not happen was announced") }
	paused, held := make(chan struct{}), make(chan struct{})
	p.host.Agent.After("Pause", func(context.Context, proto.Message) error {
		close(paused)
		<-held
		return nil
	})
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-paused
		giveUp()
	}()
	if err := c.Pause(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("pause: %v", err)
	}
	close(held)
	p.host.Agent.After("Pause", nil)
	p.checkTurns(c)
}

// A pause that was given up, and that the guest begins after it has refused to resume the
// container, which still runs then, is undone too.
func TestPauseBeginsTooLate(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	came, refused, begun := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.host.Agent.After("Pause", func(context.Context, proto.Message) error {
		close(begun)
		return nil
	})
	p.host.Agent.Hook("Pause", func(context.Context, proto.Message) error {
		close(came)
		<-refused
		return nil
	})
	p.host.Agent.Hook("Resume", func(context.Context, proto.Message) error {
		p.host.Agent.Hook("Resume", nil)
		time.AfterFunc(20*time.Millisecond, func() { close(refused) })
		return nil
	})
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-came
		giveUp()
	}()
	if err := c.Pause(ctx, func() { t.Error("a change that did not happen was announced") }); !errors.Is(err, context.Canceled) {
		t.Errorf("pause: %v", err)
	}
	<-begun
	p.host.Agent.Hook("Pause", nil)
	p.host.Agent.After("Pause", nil)
	p.checkTurns(c)
}

// A resume that the guest finishes when its caller has gone can be repeated.
func TestResumeAnsweredTooLate(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	if err := c.Pause(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	resumed, held := make(chan struct{}), make(chan struct{})
	p.host.Agent.After("Resume", func(context.Context, proto.Message) error {
		close(resumed)
		<-held
		return nil
	})
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-resumed
		giveUp()
	}()
	if err := c.Resume(ctx, func() { t.Error("a change that failed was announced") }); !errors.Is(err, context.Canceled) {
		t.Errorf("resume: %v", err)
	}
	close(held)
	p.host.Agent.After("Resume", nil)
	if err := c.Resume(t.Context(), func() {}); err != nil {
		t.Errorf("resume again: %v", err)
	}
	p.checkTurns(c)
}

// A pause that comes while one that was given up is being undone follows it: the guest
// does not run what the host shows as paused.
func TestPauseFollowsOneGivenUp(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	hanging, undoing := p.host.Agent.Hang("Pause"), make(chan struct{})
	p.host.Agent.Hook("Resume", func(context.Context, proto.Message) error {
		p.host.Agent.Hook("Resume", nil)
		close(undoing)
		return nil
	})
	ctx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- c.Pause(ctx, func() { t.Error("a change that did not happen was announced") }) }()
	await(t, "the pause", hanging)
	p.host.Agent.Hook("Pause", nil)
	giveUp()
	await(t, "its undoing", undoing)
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Pause(soon, func() {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pause without time: %v", err)
	}
	if err := c.Pause(t.Context(), func() {}); err != nil {
		t.Errorf("pause again: %v", err)
	}
	if err := await(t, "the first pause's end", first); !errors.Is(err, context.Canceled) {
		t.Errorf("pause: %v", err)
	}
	turns := slices.DeleteFunc(p.host.Agent.Calls(), func(call string) bool {
		return call != "Pause "+sandboxID && call != "Resume "+sandboxID
	})
	if state := c.Info().State; state != virtcontainers.Paused || turns[len(turns)-1] != "Pause "+sandboxID {
		t.Errorf("the host shows it as %s, the guest was told %v", state, turns)
	}
}

// checkTurns checks that a running container can be paused and resumed.
func (p *pod) checkTurns(c *virtcontainers.Container) {
	p.t.Helper()
	if state := c.Info().State; state != virtcontainers.Running {
		p.t.Errorf("state %s", state)
	}
	if err := c.Pause(p.t.Context(), func() {}); err != nil {
		p.t.Errorf("pause again: %v", err)
	}
	if err := c.Resume(p.t.Context(), func() {}); err != nil {
		p.t.Errorf("resume again: %v", err)
	}
}
