package virtcontainers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// A pod's timeline has what happened before its boot, each step, and its
// containers' creation, start and first output, with the guest's part in
// between.
func TestTimeline(t *testing.T) {
	host := newHost(t)
	opts := options(newObserver())
	now := time.Now()
	opts.Arrival = virtcontainers.Arrival{Launched: now.Add(-time.Second), Serving: now.Add(-time.Second / 2), Called: now}
	sandbox, err := virtcontainers.New(t.Context(), host.Platform(), opts)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{Sandbox: sandbox, t: t, host: host}
	defer func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	io := newIO(virtcontainers.Streams{Stdout: true})
	c, err := p.Create(t.Context(), p.options("c1", io), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	host.Agent.Remember(&api.TimelineResponse{Spans: []*api.Span{
		{Name: "modules", EndUs: 1}, {ContainerId: "c1", Name: "init stage"}, {ContainerId: "c2", Name: "of no container"},
	}})
	line := p.Timeline(t.Context())
	if line.GuestError != "" || line.Forgotten != 1 {
		t.Errorf("guest's part: %q, %d forgotten, want the one without a container", line.GuestError, line.Forgotten)
	}
	checkOrder(t, line, append([]timeline.Span{{Side: timeline.Host, Name: "shim"}, {Side: timeline.Host, Name: "request"}}, stepSpans()...))
	checkOrder(t, line, []timeline.Span{
		{Side: timeline.Host, Name: "boot"}, {Side: timeline.Host, Container: "c1", Name: "create call"},
		{Side: timeline.Host, Container: "c1", Name: "create"}, {Side: timeline.Host, Container: "c1", Name: "start call"},
	})
	for _, want := range []timeline.Span{{Side: timeline.Guest, Name: "kernel"}, {Side: timeline.Guest, Container: "c1", Name: "init stage"}} {
		if _, ok := line.Find(want.Side, want.Container, want.Name); !ok {
			t.Errorf("no span %+v", want)
		}
	}
	if shim, _ := line.Find(timeline.Host, "", "shim"); shim.Start != 0 || shim.End != time.Second/2 {
		t.Errorf("shim: %+v, want the first half second", shim)
	}
}

func stepSpans() []timeline.Span {
	var list []timeline.Span
	for _, name := range virtcontainers.BootSteps() {
		list = append(list, timeline.Span{Side: timeline.Host, Name: name})
	}
	return list
}

// checkOrder checks that those spans exist and start in that order.
func checkOrder(t *testing.T, line *timeline.Timeline, want []timeline.Span) {
	t.Helper()
	var last timeline.Span
	for _, w := range want {
		got, ok := line.Find(w.Side, w.Container, w.Name)
		if !ok {
			t.Errorf("no span %+v", w)
			continue
		}
		if got.Start < last.Start || got.End < got.Start {
			t.Errorf("%+v after %+v", got, last)
		}
		last = got
	}
}

// The first byte of output is an event, and only the first.
func TestTimelineHasTheFirstOutput(t *testing.T) {
	p := newPod(t)
	io := newIO(virtcontainers.Streams{Stdout: true})
	c, err := p.Create(t.Context(), p.options("c1", io), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	var written uint64
	for _, text := range []string{"first", "second"} {
		if err := p.host.Agent.Write("c1", "", text); err != nil {
			t.Fatal(err)
		}
		written += uint64(len(text))
		io.Drain(t.Context(), written, 0)
	}
	outputs := 0
	for _, s := range p.Timeline(t.Context()).Spans {
		if s.Name == "first output" && s.Container == "c1" && s.Start == s.End {
			outputs++
		}
	}
	if outputs != 1 {
		t.Errorf("%d first outputs, want one", outputs)
	}
}

// If the guest does not answer, only its part is missing.
func TestTimelineOfAGuestThatFails(t *testing.T) {
	p := newPod(t)
	p.host.Agent.Hook("Timeline", func(context.Context, proto.Message) error { return errInjected })
	line := p.Timeline(t.Context())
	if !strings.Contains(line.GuestError, "injected") {
		t.Errorf("guest's error %q", line.GuestError)
	}
	checkOrder(t, line, stepSpans())
}
