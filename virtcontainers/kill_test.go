package virtcontainers_test

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers"
)

// killPod is a pod whose guest has a tenth of a second to end a container.
func killPod(t *testing.T) *pod {
	t.Helper()
	host := newHost(t)
	p := &pod{t: t, host: host, observer: newObserver()}
	opts := options(p.observer)
	opts.Config.Agent.KillTimeout = 100 * time.Millisecond
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

// Only SIGKILL to a whole container is enforced.
func TestOtherSignalsAreNotEnforced(t *testing.T) {
	p := killPod(t)
	c := p.run(sandboxID)
	e := p.exec(c, "e1")
	p.start(e)
	p.host.Agent.Hook("Kill", func(context.Context, proto.Message) error { return errdefs.ErrFailedPrecondition })
	_ = initOf(t, c).Kill(t.Context(), uint32(unix.SIGTERM), true)
	_ = e.Kill(t.Context(), uint32(unix.SIGKILL), false)
	time.Sleep(time.Second)
	if state := initOf(t, c).Info().State; state != virtcontainers.Running {
		t.Errorf("the container is %s", state)
	}
	if got := p.observer.list(); len(got) > 0 {
		t.Errorf("exits %v", got)
	}
}
