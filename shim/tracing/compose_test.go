package tracing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/virtcontainers/timeline"
)

var began = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func called(method, container, exec, parent string, start, end int) call {
	return call{method: "/containerd.task.v3.Task/" + method, container: container, exec: exec, parent: parent, start: at(start), end: at(end)}
}

func part(side timeline.Side, container, name string, start, end int) timeline.Span {
	return timeline.Span{
		Side: side, Container: container, Name: name,
		Start: time.Duration(start) * time.Millisecond, End: time.Duration(end) * time.Millisecond,
	}
}

// start is a pod of one container, as its timeline is after its start.
var start = &timeline.Timeline{Began: began, Spans: []timeline.Span{
	part(timeline.Host, "", "shim", 0, 10),
	part(timeline.Host, "", "boot", 20, 60),
	part(timeline.Host, "", "vm", 25, 40),
	part(timeline.Guest, "", "kernel", 41, 55),
	part(timeline.Host, "pod", "create call", 62, 80),
	part(timeline.Guest, "pod", "create", 65, 75),
	part(timeline.Host, "pod", "start call", 101, 109),
}}

// tree draws spans as lines "parent's name > name", and a trace's number.
func tree(t *testing.T, spans []Span) []string {
	t.Helper()
	names, traces := map[string]string{someSpan: "ENGINE"}, []string{}
	for _, s := range spans {
		if names[s.ID] != "" {
			t.Errorf("two spans have the id of %s", s.Name)
		}
		names[s.ID] = s.Name
	}
	var lines []string
	for _, s := range spans {
		n := slices.Index(traces, s.Trace)
		if n < 0 {
			n, traces = len(traces), append(traces, s.Trace)
		}
		parent := names[s.Parent]
		if parent == "" && s.Parent != "" {
			parent = "unknown"
		}
		lines = append(lines, fmt.Sprintf("%d: %s > %s", n, parent, s.Name))
	}
	slices.Sort(lines)
	return lines
}

func compose(c *composer, calls ...call) (spans []Span) {
	for _, one := range calls {
		spans = append(spans, c.add(one)...)
	}
	return spans
}

func TestPodWithoutTheEnginesTrace(t *testing.T) {
	c := newComposer("pod")
	spans := compose(c, called("Create", "pod", "", "", 15, 85), called("Start", "pod", "", "", 100, 110), called("Kill", "pod", "", "", 200, 201))
	spans = append(spans, c.addTimeline(start)...)
	want := []string{
		"0:  > sandbox", "0: Task/Create > boot", "0: Task/Create > create call", "0: Task/Start > start call", "0: boot > kernel",
		"0: boot > vm", "0: create call > create", "0: sandbox > Task/Create", "0: sandbox > Task/Kill", "0: sandbox > Task/Start", "0: sandbox > shim",
	}
	if diff := cmp.Diff(want, tree(t, spans)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c.wants() || len(c.held) != 0 {
		t.Errorf("something stays: %+v", c)
	}
}

func TestPodInTheEnginesTrace(t *testing.T) {
	c, engine := newComposer("pod"), "00-"+someTrace+"-"+someSpan+"-01"
	spans := compose(c, called("Create", "pod", "", engine, 15, 85), called("Start", "pod", "", engine, 100, 110))
	spans = append(spans, c.addTimeline(start)...)
	want := []string{
		"0: ENGINE > Task/Create", "0: ENGINE > Task/Start", "0: ENGINE > sandbox", "0: Task/Create > boot", "0: Task/Create > create call",
		"0: Task/Start > start call", "0: boot > kernel", "0: boot > vm", "0: create call > create", "0: sandbox > shim",
	}
	if diff := cmp.Diff(want, tree(t, spans)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if spans[0].Trace != someTrace {
		t.Errorf("trace %s, want the engine's", spans[0].Trace)
	}
}

// A trace whose origin does not record it is not recorded here either.
func TestUnsampled(t *testing.T) {
	c, engine := newComposer("pod"), "00-"+someTrace+"-"+someSpan+"-00"
	spans := compose(c, called("Create", "pod", "", engine, 15, 85), called("Start", "pod", "", engine, 100, 110))
	if spans = append(spans, c.addTimeline(start)...); len(spans) != 0 {
		t.Errorf("%d spans", len(spans))
	}
	sampled := "00-" + strings.Repeat("1", traceDigits) + "-" + someSpan + "-01"
	if spans := compose(c, called("Kill", "pod", "", sampled, 200, 201)); len(spans) != 1 {
		t.Errorf("another trace: %d spans, want 1", len(spans))
	}
}

// Each part is sent once, and a container's only when it has started.
func TestPartsAreSentOnce(t *testing.T) {
	c := newComposer("pod")
	_ = compose(c, called("Create", "pod", "", "", 15, 85))
	names := func(spans []Span) (list []string) {
		for _, s := range spans {
			list = append(list, s.Name)
		}
		return list
	}
	if got := names(c.addTimeline(start)); !slices.Equal(got, []string{"sandbox", "shim", "boot", "vm", "kernel"}) {
		t.Errorf("before the start: %q", got)
	}
	if c.wants() {
		t.Error("a timeline is wanted before the container's start")
	}
	_ = compose(c, called("Start", "pod", "some exec", "", 90, 95))
	if c.wants() {
		t.Error("a timeline is wanted for an exec")
	}
	_ = compose(c, called("Start", "pod", "", "", 100, 110))
	if got := names(c.addTimeline(start)); !slices.Equal(got, []string{"create call", "create", "start call"}) {
		t.Errorf("after the start: %q", got)
	}
	if got := c.addTimeline(start); len(got) != 0 || c.wants() {
		t.Errorf("again: %d spans", len(got))
	}
	_ = compose(c, called("Delete", "pod", "", "", 300, 301), called("Create", "pod", "", "", 400, 410), called("Start", "pod", "", "", 411, 412))
	if !c.wants() {
		t.Error("another container with the same id is not sent")
	}
}

func TestCallsAsSpans(t *testing.T) {
	c := newComposer("pod")
	failed := called("Exec", "pod", "e1", "", 1, 2)
	failed.err = errors.New("no such program")
	got := compose(c, failed)[0]
	want := Span{
		Trace: c.root.trace, ID: got.ID, Parent: c.root.span, Name: "Task/Exec", Server: true, Start: at(1), End: at(2), Error: "no such program",
		Attributes: map[string]string{
			"rpc.system": "ttrpc", "rpc.service": "containerd.task.v3.Task", "rpc.method": "Exec", "container.id": "pod", "katabox.exec.id": "e1",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Containers that come and go leave nothing in the composer.
func TestComposerIsBounded(t *testing.T) {
	c := newComposer("pod")
	_ = c.addTimeline(start)
	for i := range 100 {
		id := fmt.Sprint(i)
		_ = compose(c, called("Create", id, "", "", 1, 2))
		if i%2 == 0 {
			_ = compose(c, called("Start", id, "", "", 2, 3))
			_ = c.addTimeline(start)
		}
		_ = compose(c, called("Delete", id, "", "", 3, 4), called("Shutdown", id, "", "", 5, 6)) // containerd's calls
	}
	if len(c.held)+len(c.due)+len(c.sent) > 1 {
		t.Errorf("%d held, %d due, %d sent", len(c.held), len(c.due), len(c.sent))
	}
}
