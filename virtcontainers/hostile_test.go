package virtcontainers_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers"
)

func exitEvent(id, execID string, status uint32) *api.Event {
	return &api.Event{Event: &api.Event_Exit{Exit: &api.Exit{
		ContainerId: id, ExecId: execID, Status: status, ExitedAt: timestamppb.Now(),
	}}}
}

// told sends events and waits until all events so far have left the guest; the
// host handles them a little later.
func (p *pod) told(events ...*api.Event) {
	p.t.Helper()
	want := p.host.Agent.EventsTaken() + len(events)
	for _, ev := range events {
		p.host.Agent.Send(ev)
	}
	eventually(p.t, "the events", func() bool { return p.host.Agent.EventsTaken() >= want })
}

// caughtUp waits until the host has handled all that the guest has sent: it
// handles events in their order, and this sends one more, about a container that
// runs.
func (p *pod) caughtUp(running string) {
	p.t.Helper()
	before := p.observer.oomCount()
	p.host.Agent.OOM(running)
	p.observer.until(p.t, "want the last event", func() bool { return p.observer.oomCount() > before })
}

// Events that make no sense are ignored, and the pod lives on.
func TestEventsWithoutSense(t *testing.T) {
	p := newPod(t)
	c := p.run(sandboxID)
	c1 := p.run("c1")
	e1 := p.exec(c, "e1")
	p.exits("c1", "", 1)
	statusOf(t, initOf(t, c1))
	if _, err := c1.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	c2 := p.run("c2")
	p.exits("c2", "", 2)
	statusOf(t, initOf(t, c2))
	p.told(
		&api.Event{},
		&api.Event{Event: &api.Event_Exit{Exit: &api.Exit{}}},
		exitEvent("none", "", 1),
		exitEvent(sandboxID, "none", 1),
		exitEvent("../../pod", "", 1),
		exitEvent(strings.Repeat("x", 1<<20), "", 1),
		exitEvent("c1", "", 2), // it was deleted
		&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{}}},
		&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: "none"}}},
	)
	// An exec that was not started ends, and its exit is not reported.
	p.told(exitEvent(sandboxID, "e1", 9))
	if status := statusOf(t, e1); status != 9 {
		t.Errorf("e1's status %d", status)
	}
	p.told(&api.Event{Event: &api.Event_Oom{Oom: &api.OOM{ContainerId: "c2"}}}) // it has ended
	p.host.Agent.OOM(sandboxID)
	p.observer.until(t, "want an OOM", func() bool { return p.observer.oomCount() > 0 })
	p.exits(sandboxID, "", 0)
	p.awaitStopped()
	p.observer.expect(t, "c1=1", "c2=2", "pod=0")
	if n := p.observer.oomCount(); n != 1 {
		t.Errorf("%d OOM events, want 1", n)
	}
}

func (o *observer) oomCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ooms)
}

// The first exit of a process counts; its time is never in the future, nor
// before the process was made; its status fits into 8 bits.
func TestExitValues(t *testing.T) {
	now := time.Now()
	past := now.Add(-time.Hour)
	tests := []struct {
		name   string
		exit   *api.Exit
		status uint32
	}{
		{"past", &api.Exit{Status: 3, ExitedAt: timestamppb.New(past)}, 3},
		{"future", &api.Exit{Status: 0, ExitedAt: timestamppb.New(now.Add(time.Hour))}, 0},
		{"no time", &api.Exit{Status: 255}, 255},
		{"not a time", &api.Exit{ExitedAt: &timestamppb.Timestamp{Seconds: 1 << 60}}, 0},
		{"status beyond 8 bits", &api.Exit{Status: 0x1_02}, 2},
	}
	p := newPod(t)
	p.run("bystander")
	ran := 0
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ran++
			p := &pod{Sandbox: p.Sandbox, t: t, host: p.host, observer: p.observer}
			c := p.run("c1")
			tt.exit.ContainerId = "c1"
			second := exitEvent("c1", "", 77)
			p.told(&api.Event{Event: &api.Event_Exit{Exit: tt.exit}}, second, second)
			if status := statusOf(t, initOf(t, c)); status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
			at := initOf(t, c).Info().Exit.At
			if at.Before(now) || at.After(time.Now()) {
				t.Errorf("at %v, want between %v and now", at, now)
			}
			p.exits("c1", "", 0)    // the fake reports the real exit again
			p.caughtUp("bystander") // the next container has the same ID
			if _, err := c.Delete(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if got := p.observer.list(); len(got) != ran {
		t.Errorf("exits: %v, want %d", got, ran)
	}
}

// A container whose exit the guest reports while it runs is killed when it is
// deleted. A guest that does not kill it is lost.
func TestDeleteAfterAFalseExit(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		t.Run(fmt.Sprintf("ignores SIGKILL: %v", ignores), func(t *testing.T) {
			start := newPod
			if ignores {
				start = killPod
			}
			p := start(t)
			p.run(sandboxID)
			c := p.run("c1")
			if ignores {
				if err := p.host.Agent.Deafen("c1", ""); err != nil {
					t.Fatal(err)
				}
			}
			p.told(exitEvent("c1", "", 7))
			if status := statusOf(t, initOf(t, c)); status != 7 {
				t.Errorf("status %d, want 7", status)
			}
			if _, err := c.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			if ignores {
				p.awaitStopped()
				return
			}
			if n := p.host.Agent.Containers(); n != 1 {
				t.Errorf("the guest has %d containers, want 1", n)
			}
			p.observer.expect(t, "c1=7")
		})
	}
}

// A guest can repeat the same exit without end: that does not start a goroutine
// each time, and the exit is reported at most once.
func TestFloodOfExits(t *testing.T) {
	const flood = 1_000
	p := newPod(t)
	p.run(sandboxID)
	release := make(chan struct{})
	p.host.Agent.After("Create", func(ctx context.Context, _ proto.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	created := make(chan *virtcontainers.Container, 1)
	go func() {
		c, err := p.Create(t.Context(), p.options("c1", nil), ignore)
		if err != nil {
			t.Error(err)
		}
		created <- c
	}()
	eventually(t, "the creation in the guest", func() bool { return p.host.Agent.Containers() == 2 })
	before := runtime.NumGoroutine()
	ev := exitEvent("c1", "", 9)
	events := make([]*api.Event, flood)
	for i := range events {
		events[i] = ev
	}
	p.told(events...)
	if n := runtime.NumGoroutine(); n > before+50 {
		t.Errorf("%d goroutines more after %d events", n-before, flood)
	}
	close(release)
	c := await(t, "the creation", created)
	if status := statusOf(t, initOf(t, c)); status != 9 {
		t.Errorf("status %d", status)
	}
	p.told(events...)
	p.exits("c1", "", 9)
	if _, err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	p.observer.expect(t, "c1=9")
}
