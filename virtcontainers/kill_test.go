package virtcontainers_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
)

// killPod is a pod whose guest has 1.2 s to end a container, and as long to say
// whether it has: its machine counts as slow.
func killPod(t *testing.T) *pod {
	t.Helper()
	return killPodWith(t, time.Second)
}

// A SIGKILL that is refused and repeated does not put off the end that the host enforces.
func TestKillIsRefusedAndRepeated(t *testing.T) {
	t.Parallel() // it waits
	p := killPod(t)
	p.run(sandboxID)
	c := p.run("c1")
	p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition)
	eventually(t, "the container's end", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = initOf(t, c).Kill(ctx, uint32(unix.SIGKILL), true)
		return c.Info().State == virtcontainers.Stopped
	})
}

// killPodWith is killPod whose guest has that long to create or delete a
// container.
func killPodWith(t *testing.T, createTimeout time.Duration) *pod {
	t.Helper()
	host := newHost(t)
	p := &pod{t: t, host: host, observer: newObserver()}
	opts := options(p.observer)
	opts.Config.Agent.KillTimeout = 200 * time.Millisecond
	opts.Config.Agent.HealthTimeout = 3 * time.Second
	opts.Config.Runtime.CreateContainerTimeout = createTimeout
	var err error
	if p.Sandbox, err = virtcontainers.New(t.Context(), host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	return p
}

// If a guest does not end a container on SIGKILL, whatever it reports, the host
// ends the container, and the guest with it.
func TestKillIsFinal(t *testing.T) {
	for name, script := range map[string]func(*pod){
		"refuses":       func(p *pod) { p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition) },
		"never answers": func(p *pod) { p.host.Agent.Hang("Kill") },
		"hangs": func(p *pod) {
			p.host.Agent.Hang("Kill")
			p.host.Agent.Hang("State")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			p := killPod(t)
			p.run(sandboxID)
			c := p.run("c1")
			script(p)
			ended := make(chan error, 1)
			go func() { ended <- initOf(t, c).Kill(t.Context(), uint32(unix.SIGKILL), true) }()
			if status := statusOf(t, initOf(t, c)); status != virtcontainers.ExitKilled {
				t.Errorf("status %d", status)
			}
			p.awaitStopped()
			p.observer.expect(t, "c1=137", "pod=255")
			select {
			case <-ended: // with the guest's error, or nil
			case <-time.After(patience):
				t.Error("Kill does not return")
			}
		})
	}
}

// A guest that ended the container without reporting it keeps its other
// containers.
func TestKillOfWhatHasEnded(t *testing.T) {
	t.Parallel() // it waits
	p := killPod(t)
	p.run(sandboxID)
	c := p.run("c1")
	p.host.Agent.Fail("Kill", errdefs.ErrNotFound)
	p.host.Agent.Fail("State", errdefs.ErrNotFound)
	_ = initOf(t, c).Kill(t.Context(), uint32(unix.SIGKILL), false)
	if status := statusOf(t, initOf(t, c)); status != virtcontainers.ExitKilled {
		t.Errorf("status %d", status)
	}
	p.observer.expect(t, "c1=137")
	if state := initOf(t, p.run("c2")).Info().State; state != virtcontainers.Running {
		t.Errorf("another container is %s", state)
	}
}

// Only SIGKILL is enforced.
func TestOtherSignalsAreNotEnforced(t *testing.T) {
	t.Parallel() // it waits
	p := killPod(t)
	c := p.run(sandboxID)
	e := p.exec(c, "e1")
	p.start(e)
	p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition)
	_ = initOf(t, c).Kill(t.Context(), uint32(unix.SIGTERM), true)
	_ = e.Kill(t.Context(), uint32(unix.SIGTERM), false)
	time.Sleep(time.Second)
	if state := initOf(t, c).Info().State; state != virtcontainers.Running {
		t.Errorf("the container is %s", state)
	}
	if got := p.observer.list(); len(got) > 0 {
		t.Errorf("exits %v", got)
	}
}

// SIGKILL to an exec is final too. A guest that answers for it keeps its
// containers.
func TestKillOfAnExecIsFinal(t *testing.T) {
	for name, script := range map[string]func(*pod){
		"refuses":       func(p *pod) { p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition) },
		"never answers": func(p *pod) { p.host.Agent.Hang("Kill") },
		"forgets the exit": func(p *pod) {
			p.host.Agent.Fail("Kill", errdefs.ErrNotFound)
			p.host.Agent.Fail("State", errdefs.ErrNotFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			p := killPod(t)
			c := p.run(sandboxID)
			e := p.exec(c, "e1")
			p.start(e)
			script(p)
			go func() { _ = e.Kill(context.Background(), uint32(unix.SIGKILL), false) }()
			if status := statusOf(t, e); status != virtcontainers.ExitKilled {
				t.Errorf("status %d", status)
			}
			p.observer.expect(t, "pod/e1=137")
			if !e.IO().(*testIO).isClosed() {
				t.Error("the exec's output is still open")
			}
			p.told(exitEvent(sandboxID, "e1", 0)) // too late
			if _, err := e.Delete(t.Context()); err != nil {
				t.Errorf("the guest, in which it runs, refuses its deletion: %v", err)
			}
			if state := initOf(t, p.run("c2")).Info().State; state != virtcontainers.Running {
				t.Errorf("a new container is %s", state)
			}
			p.observer.expect(t, "pod/e1=137")
		})
	}
}

// A guest that does not answer for a killed exec is ended.
func TestKillOfAnExecInASilentGuest(t *testing.T) {
	t.Parallel() // it waits
	p := killPod(t)
	e := p.exec(p.run(sandboxID), "e1")
	p.start(e)
	p.host.Agent.Hang("Kill")
	p.host.Agent.Hang("State")
	go func() { _ = e.Kill(context.Background(), uint32(unix.SIGKILL), false) }()
	if status := statusOf(t, e); status != virtcontainers.ExitKilled {
		t.Errorf("status %d", status)
	}
	p.awaitStopped()
	p.observer.expect(t, "pod/e1=137", "pod=255")
}

// A guest that is too slow to answer for a killed exec, but not for a health
// check, keeps running: its containers are not to blame.
func TestKillOfAnExecInASlowGuest(t *testing.T) {
	t.Parallel() // it waits
	p := killPod(t)
	c := p.run(sandboxID)
	e := p.exec(c, "e1")
	p.start(e)
	p.host.Agent.Hang("Kill")
	var asked atomic.Int32
	answered := make(chan struct{})
	p.host.Agent.Hook("State", func(ctx context.Context, _ proto.Message) error {
		if asked.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		close(answered)
		return nil
	})
	go func() { _ = e.Kill(context.Background(), uint32(unix.SIGKILL), false) }()
	if status := statusOf(t, e); status != virtcontainers.ExitKilled {
		t.Errorf("status %d", status)
	}
	await(t, "the second question", answered)
	p.host.Agent.Hook("State", nil)
	if state := initOf(t, p.run("c2")).Info().State; state != virtcontainers.Running {
		t.Errorf("a new container is %s", state)
	}
	p.observer.expect(t, "pod/e1=137")
}

// SIGKILL to the pod's own container is final too. Only a guest that answers is
// asked to end its other containers.
func TestKillOfThePauseContainerIsFinal(t *testing.T) {
	for name, test := range map[string]struct {
		script func(*pod)
		want   []string
		asked  bool
		ended  uint32
	}{
		"refuses": {func(p *pod) { p.host.Agent.Fail("Kill", errdefs.ErrFailedPrecondition) }, []string{"pod/e1=137", "c1=137", "pod=137"}, true, 0},
		"hangs": {func(p *pod) {
			p.host.Agent.Hang("Kill")
			p.host.Agent.Hang("State")
		}, []string{"pod/e1=137", "c1=255", "pod=137"}, false, virtcontainers.ExitLost},
		// The guest's server says so, a moment before the host sees it.
		"has no time left": {func(p *pod) {
			p.host.Agent.Hang("Kill")
			p.host.Agent.Fail("State", context.DeadlineExceeded)
		}, []string{"pod/e1=137", "c1=255", "pod=137"}, false, virtcontainers.ExitLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for containers that do not end
			p := killPod(t)
			c := p.run(sandboxID)
			p.start(p.exec(c, "e1"))
			p.run("c1")
			test.script(p)
			go func() { _ = initOf(t, c).Kill(context.Background(), uint32(unix.SIGKILL), true) }()
			if status := statusOf(t, initOf(t, c)); status != virtcontainers.ExitKilled {
				t.Errorf("status %d", status)
			}
			p.awaitStopped()
			if got := p.observer.list(); !slices.Equal(got, test.want) {
				t.Errorf("exits %v, want %v in that order", got, test.want)
			}
			if asked := slices.Contains(p.host.Agent.Calls(), "Kill c1"); asked != test.asked {
				t.Errorf("asked to kill c1: %v, want %v", asked, test.asked)
			}
			if status := p.End().Status; status != test.ended {
				t.Errorf("the sandbox ended with %d, want %d", status, test.ended)
			}
		})
	}
}

// A guest that reports its containers' exits but not their execs' does not leave
// those without an end.
func TestExecsEndWithTheirContainer(t *testing.T) {
	t.Parallel() // it waits for exits that do not come
	p := newPod(t)
	p.run(sandboxID)
	c := p.run("c1")
	e1, e2, e3 := p.exec(c, "e1"), p.exec(c, "e2"), p.exec(c, "e3")
	p.start(e1)
	hanging := p.host.Agent.Hang("Start")
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- e2.Start(ctx, ignore) }()
	await(t, "the start of e2", hanging)
	p.told(exitEvent("c1", "", 3))
	if status := statusOf(t, initOf(t, c)); status != 3 {
		t.Errorf("status %d", status)
	}
	if status := statusOf(t, e1); status != virtcontainers.ExitKilled {
		t.Errorf("e1's status %d", status)
	}
	if status := statusOf(t, e2); status != virtcontainers.ExitLost {
		t.Errorf("the status of e2, which was being started, is %d", status)
	}
	p.observer.expect(t, "c1/e1=137", "c1=3") // once both are reported
	if got, want := p.observer.list(), []string{"c1/e1=137", "c1=3"}; !slices.Equal(got, want) {
		t.Errorf("exits in the order %v, want %v", got, want)
	}
	cancel()
	if err := await(t, "the end of e2's start", started); err == nil {
		t.Error("e2 was started in a container that has ended")
	}
	// The guest starts an exec in a container that has ended.
	p.host.Agent.Hook("Start", nil)
	p.start(e3)
	p.host.Agent.Fail("Delete", errdefs.ErrNotFound)
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if status := statusOf(t, e3); status != virtcontainers.ExitKilled {
		t.Errorf("e3's status %d", status)
	}
	p.observer.expect(t, "c1/e1=137", "c1=3", "c1/e3=137")
}

// An exec that was not started ends with its container's deletion, without an
// event.
func TestDeleteEndsUnstartedExecs(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	c := p.run("c1")
	e := p.exec(c, "e1")
	p.exits("c1", "", 0)
	statusOf(t, initOf(t, c))
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if status := statusOf(t, e); status != virtcontainers.ExitKilled {
		t.Errorf("status %d", status)
	}
	p.observer.expect(t, "c1=0")
}
