package virtcontainers

import (
	"context"
	"sync"
	"time"

	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// The names of the spans that are not steps. Those of a boot and of a container's
// creation have the steps' names.
const (
	shimSpan    = "shim"         // from the engine's call of the shim's program until it serves
	requestSpan = "request"      // reading the engine's request and the configuration
	bootSpan    = "boot"         // all steps of the boot
	qemuSpan    = "qemu"         // from QEMU's fork until its monitor answers
	createSpan  = "create call"  // all steps of a container's creation
	startSpan   = "start call"   // of a container's init
	outputSpan  = "first output" // of a container's init
)

// Arrival is what happened before a sandbox's boot. Unknown times are zero.
type Arrival struct {
	// Launched is when the engine ran the shim's program, Serving when the shim
	// began to serve, and Called when the engine requested the sandbox.
	Launched, Serving, Called time.Time
}

// record begins a sandbox's record.
func (a Arrival) record(now time.Time) *spans.Recorder {
	zero := now
	for _, t := range []time.Time{a.Launched, a.Called} {
		if !t.IsZero() && t.Before(zero) {
			zero = t
		}
	}
	r := spans.New(zero)
	if !a.Launched.IsZero() && a.Serving.After(a.Launched) {
		r.Add("", shimSpan, a.Launched, a.Serving)
	}
	if !a.Called.IsZero() {
		r.Add("", requestSpan, a.Called, now)
	}
	return r
}

// Timeline returns how the sandbox and its containers started. It asks the
// guest for its part, bounded by ctx; without an answer it returns the rest,
// with the reason.
func (s *Sandbox) Timeline(ctx context.Context) *timeline.Timeline {
	t := s.HostTimeline()
	part, err := s.guestPart(ctx)
	if err != nil {
		t.GuestError = err.Error()
		return t
	}
	t.AddGuest(part, s.recorder.Zero())
	return t
}

// HostTimeline returns the host's part of Timeline, without a call.
func (s *Sandbox) HostTimeline() *timeline.Timeline { return timeline.New(s.ID, s.recorder) }

func (s *Sandbox) guestPart(ctx context.Context) (timeline.GuestPart, error) {
	client, err := s.agent()
	if err != nil {
		return timeline.GuestPart{}, err
	}
	leave, ok := s.sleeper.tryEnter()
	if !ok {
		return timeline.GuestPart{}, errHibernates
	}
	defer leave()
	now, err := client.CompareClocks(ctx)
	if err != nil {
		return timeline.GuestPart{}, err
	}
	list, forgotten, err := client.Timeline(ctx)
	if err != nil {
		return timeline.GuestPart{}, err
	}
	agent, serving := client.BootTimes()
	return timeline.GuestPart{
		First: client.Clock, Now: now, Agent: agent, Serving: serving, Spans: list, Forgotten: forgotten,
	}, nil
}

// noteFirstOutput has the first byte of a container's output recorded.
func (c *Container) noteFirstOutput(conns Conns) Conns {
	once := new(sync.Once)
	note := func() {
		once.Do(func() {
			now := time.Now()
			c.sandbox.recorder.Add(c.ID, outputSpan, now, now)
		})
	}
	for _, conn := range []*guest.Conn{&conns.Stdout, &conns.Stderr} {
		if *conn != nil {
			*conn = noticedConn{*conn, note}
		}
	}
	return conns
}

// noticedConn calls note at each read that returns data.
type noticedConn struct {
	guest.Conn
	note func()
}

// Read implements net.Conn.
func (c noticedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.note()
	}
	return n, err
}
