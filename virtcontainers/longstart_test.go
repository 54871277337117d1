package virtcontainers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// An exec whose start outlives its call does not cost the pod: it ends with its start,
// or, if the guest has started it, at once.
func TestStartOutlivesItsCall(t *testing.T) {
	for name, script := range map[string]func(p *pod, wait fakeguest.Hook){
		"it lasts":                func(p *pod, wait fakeguest.Hook) { p.host.Agent.Hook(fakeguest.Starting, wait) },
		"it is answered too late": func(p *pod, wait fakeguest.Hook) { p.host.Agent.After("Start", wait) },
		"it does not end on SIGKILL": func(p *pod, wait fakeguest.Hook) {
			p.host.Agent.After("Start", func(ctx context.Context, req proto.Message) error {
				return errors.Join(p.host.Agent.Deafen(sandboxID, "e1"), wait(ctx, req))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for what does not end
			p := killPod(t)
			c := p.run(sandboxID)
			e := p.exec(c, "e1")
			begun, held := make(chan struct{}), make(chan struct{})
			script(p, func(ctx context.Context, _ proto.Message) error {
				close(begun)
				select {
				case <-held:
				case <-ctx.Done():
				}
				return nil
			})
			ctx, giveUp := context.WithCancel(t.Context())
			go func() {
				<-begun
				giveUp()
			}()
			never := func(virtcontainers.ProcessInfo) { t.Error("a start that failed was announced") }
			if err := e.Start(ctx, never); !errors.Is(err, context.Canceled) {
				t.Fatalf("start: %v", err)
			}
			if exit, err := e.Delete(t.Context()); err != nil || exit.Status != virtcontainers.ExitLost {
				t.Errorf("delete: %+v, %v", exit, err)
			}
			p.host.Agent.Hook(fakeguest.Starting, nil)
			p.host.Agent.After("Start", nil)
			close(held)
			if state := c.Info().State; state != virtcontainers.Running {
				t.Fatalf("the container is %s", state)
			}
			p.run("c1")
			p.observer.expect(t)
		})
	}
}

// An init that the guest starts after its caller has given up is running, as with other
// runtimes, and is announced.
func TestStartOfInitOutlivesItsCall(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			p := newPod(t)
			p.run(sandboxID)
			c := p.create("c1")
			ctx, giveUp := context.WithCancel(t.Context())
			hook := func(context.Context, proto.Message) error {
				giveUp()
				return nil
			}
			switch when {
			case "before":
				p.host.Agent.Hook("Start", hook)
			case "after":
				p.host.Agent.After("Start", hook)
			}
			announced := 0
			if err := initOf(t, c).Start(ctx, func(virtcontainers.ProcessInfo) { announced++ }); err != nil || announced != 1 {
				t.Errorf("start: %v, announced %d times", err, announced)
			}
			if state := c.Info().State; state != virtcontainers.Running {
				t.Errorf("the container is %s", state)
			}
		})
	}
}

// The hooks of such a start run, too.
func TestPoststartOutlivesItsCall(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	opts := p.options("c1", nil)
	opts.Bundle.Spec.Hooks = hooks("")
	c, err := p.Create(t.Context(), opts, ignore)
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	p.host.Agent.Hook("Start", func(context.Context, proto.Message) error {
		giveUp()
		return nil
	})
	if err := initOf(t, c).Start(ctx, ignore); err != nil {
		t.Errorf("start: %v", err)
	}
}

// A start that the guest does not answer ends with the sandbox at the latest.
func TestStopEndsAStart(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	c := p.create("c1")
	hanging, ended := p.host.Agent.Hang("Start"), make(chan error, 1)
	go func() { ended <- initOf(t, c).Start(t.Context(), ignore) }()
	await(t, "the start", hanging)
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := await(t, "the start's end", ended); err == nil {
		t.Error("a container of a sandbox that has ended was started")
	}
}

// What has been given up before the guest is asked to start it stays created.
func TestStartOfInitGivenUpBefore(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	c := p.create("c1")
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	never := func(virtcontainers.ProcessInfo) { t.Error("a start that failed was announced") }
	if err := initOf(t, c).Start(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	p.start(initOf(t, c))
}

// A process that the guest still runs, although it has reported its exit, gets SIGKILL
// until it is deleted.
func TestKillIsRepeatedUntilTheDeletion(t *testing.T) {
	p := newPod(t)
	e := p.exec(p.run(sandboxID), "e1")
	p.start(e)
	var refused atomic.Bool
	p.host.Agent.Hook("Kill", func(context.Context, proto.Message) error {
		if refused.Swap(true) {
			return nil
		}
		return errdefs.ErrFailedPrecondition
	})
	p.told(exitEvent(sandboxID, "e1", 3))
	statusOf(t, e)
	if exit, err := e.Delete(t.Context()); err != nil || exit.Status != 3 {
		t.Errorf("delete: %+v, %v", exit, err)
	}
	p.observer.expect(t, "pod/e1=3")
}
