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
