package timeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/katabox/katabox/internal/spans"
)

// Version is the format of the JSON.
const Version = 1

// Timeline is a pod's start.
type Timeline struct {
	Version int    `json:"version"`
	Sandbox string `json:"sandbox"`
	// Began is the host's wall clock at the zero of the spans' times.
	Began time.Time `json:"began"`
	// Forgotten counts spans, of either side, that were dropped.
	Forgotten int `json:"forgotten,omitempty"`
	// Slack is how far the guest's spans may be off, in nanoseconds.
	Slack time.Duration `json:"guest_slack_ns"`
	// GuestError is why the guest's spans are missing; empty if they are not.
	GuestError string `json:"guest_error,omitempty"`
	// Spans are in the order of their starts.
	Spans []Span `json:"spans"`
}

// Side is where a span was recorded.
type Side string

// The sides. The guest's spans are not trusted.
const (
	Host  Side = "host"
	Guest Side = "guest"
)

// Span is one part of a pod's start, in nanoseconds since Began. An event
// without a duration has its end at its start.
type Span struct {
	Side Side `json:"side"`
	// Container is the container to whose start it belongs; empty for the
	// pod's.
	Container string        `json:"container,omitempty"`
	Name      string        `json:"name"`
	Start     time.Duration `json:"start_ns"`
	End       time.Duration `json:"end_ns"`
}

// isEvent reports whether the span has no duration.
func (s Span) isEvent() bool { return s.End == s.Start }

// New makes the timeline of what the host recorded.
func New(sandbox string, recorded *spans.Recorder) *Timeline {
	list, forgotten := recorded.Spans()
	t := &Timeline{Version: Version, Sandbox: sandbox, Began: recorded.Zero().Round(0).UTC(), Forgotten: forgotten}
	for _, s := range list {
		t.Spans = append(t.Spans, Span{Side: Host, Container: s.Container, Name: s.Name, Start: s.Start, End: s.End})
	}
	return t
}

// add inserts spans in order.
func (t *Timeline) add(list ...Span) {
	t.Spans = append(t.Spans, list...)
	slices.SortStableFunc(t.Spans, inOrder)
}

// inOrder sorts by start; of two that start together, the longer, enclosing one
// comes first.
func inOrder(a, b Span) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
}

// Find returns the first span of that side, container and name.
func (t *Timeline) Find(side Side, container, name string) (Span, bool) {
	for _, s := range t.Spans {
		if s.Side == side && s.Container == container && s.Name == name {
			return s, true
		}
	}
	return Span{}, false
}

// maxSpans bounds what Parse accepts: both recorders' spans, and those derived.
const maxSpans = 2*spans.MaxSpans + 16

// Parse reads a timeline that a shim wrote (json.Marshal).
func Parse(data []byte) (*Timeline, error) {
	var t Timeline
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("decode timeline: %w", err)
	}
	if t.Version != Version {
		return nil, fmt.Errorf("decode timeline: format version %d, want %d: the shim is of another release", t.Version, Version)
	}
	if len(t.Spans) > maxSpans {
		return nil, fmt.Errorf("decode timeline: %d spans, want at most %d", len(t.Spans), maxSpans)
	}
	for _, s := range t.Spans {
		if s.Start < 0 || s.End < s.Start || s.Side != Host && s.Side != Guest {
			return nil, errors.New("decode timeline: a span has no side or ends before it starts")
		}
	}
	slices.SortStableFunc(t.Spans, inOrder)
	return &t, nil
}
