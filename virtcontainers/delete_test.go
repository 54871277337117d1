package virtcontainers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
)

// A guest that answers all but the deletion of a container is ended, although the
// engine has given up before. One that does not delete an exec keeps its
// containers.
func TestDeletionIsFinal(t *testing.T) {
	for _, isExec := range []bool{false, true} {
		t.Run(fmt.Sprintf("exec %v", isExec), func(t *testing.T) {
			t.Parallel() // it waits for an answer that does not come
			p := killPod(t)
			p.run(sandboxID)
			c := p.run("c1")
			e := p.exec(c, "e1")
			p.host.Agent.Hang("Delete")
			if isExec {
				if _, err := e.Delete(t.Context()); err != nil {
					t.Error(err)
				}
				if state := initOf(t, c).Info().State; state != virtcontainers.Running {
					t.Errorf("the exec's container is %s", state)
				}
				return
			}
			p.told(exitEvent("c1", "", 3))
			statusOf(t, initOf(t, c))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.Delete(ctx); err != nil {
				t.Error(err)
			}
			p.awaitStopped()
			p.observer.expect(t, "c1=3", "pod=255")
		})
	}
}

// withLongCreates is the configuration of a pod whose annotation gives the creation of
// a container a day.
func withLongCreates(t *testing.T, c *config.Config) *config.Config {
	t.Helper()
	annotated, err := c.Annotate(map[string]string{"io.katacontainers.config.runtime.create_container_timeout": "86400"})
	if err != nil {
		t.Fatal(err)
	}
	return annotated
}

// A pod's annotation does not give its guest more time for a deletion than the
// operator does: a pod whose guest answers everything else could not be removed.
func TestDeletionIsBoundedByTheOperator(t *testing.T) {
	t.Parallel() // it waits for an answer that does not come
	host := newHost(t)
	p := &pod{t: t, host: host, observer: newObserver()}
	opts := options(p.observer)
	opts.Config.Agent.KillTimeout = 200 * time.Millisecond
	opts.Config.Runtime.CreateContainerTimeout = time.Second
	opts.Config = withLongCreates(t, opts.Config)
	var err error
	if p.Sandbox, err = virtcontainers.New(t.Context(), host.Platform(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background()) })
	p.run(sandboxID)
	c := p.run("c1")
	p.exits("c1", "", 3)
	statusOf(t, initOf(t, c))
	p.host.Agent.Hang("Delete")
	deleted := make(chan error, 1)
	go func() {
		_, err := c.Delete(t.Context())
		deleted <- err
	}()
	if err := await(t, "the end of the deletion", deleted); err != nil {
		t.Error(err)
	}
	p.awaitStopped()
	p.observer.expect(t, "c1=3", "pod=255")
}

// A guest that answers nothing while it deletes a container is ended long before
// the time for a deletion is up.
func TestDeletionInHungGuest(t *testing.T) {
	t.Parallel()
	p := killPodWith(t, time.Hour)
	p.run(sandboxID)
	c := p.run("c1")
	p.told(exitEvent("c1", "", 3))
	statusOf(t, initOf(t, c))
	p.host.Agent.Hang("Delete")
	p.host.Agent.Hang("Hello")
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	p.awaitStopped()
	p.observer.expect(t, "c1=3", "pod=255")
}
