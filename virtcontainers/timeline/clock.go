package timeline

import (
	"slices"
	"time"

	"github.com/katabox/katabox/internal/spans"
)

// Clock is one comparison of the two clocks.
type Clock struct {
	// Host is the middle of the call that asked the guest for its time.
	Host time.Time
	// Guest is the answer: the time since the guest's kernel started.
	Guest time.Duration
	// Slack is half of the call's duration, the greatest error of Host.
	Slack time.Duration
}

// GuestPart is what a guest reports, on its own clock: the time since its
// kernel started.
type GuestPart struct {
	// First is the comparison at the boot's end, Now a current one.
	First, Now Clock
	// Agent is when the agent ran its first instruction, Serving when it began
	// to serve.
	Agent, Serving time.Duration
	Spans          []spans.Span
	Forgotten      int
}

// resumeStep is the boot's step that lets the machine run.
const resumeStep = "resume"

// AddGuest moves the guest's spans to the host's clock and adds them, with
// those that follow from them: firmware (from the machine's first instruction
// to the kernel's), kernel and agent. Whatever the guest reports, its spans
// begin no earlier than the machine ran, end no later than the last comparison,
// and belong to containers that the host knows.
func (t *Timeline) AddGuest(g GuestPart, zero time.Time) {
	m := newMapping(g.First, g.Now, zero)
	ran, _ := t.Find(Host, "", resumeStep)
	m.earliest, m.latest = ran.Start, max(ran.Start, g.Now.Host.Add(g.Now.Slack).Sub(zero))
	t.Slack, t.Forgotten = m.slack, t.Forgotten+g.Forgotten
	list := []Span{
		{Side: Guest, Name: "firmware", Start: m.earliest, End: m.host(0)},
		m.span(spans.Span{Name: "kernel", End: g.Agent}),
		m.span(spans.Span{Name: "agent", Start: g.Agent, End: max(g.Agent, g.Serving)}),
	}
	for _, s := range g.Spans {
		if !t.knows(s.Container) {
			t.Forgotten++
			continue
		}
		list = append(list, m.span(s))
	}
	t.add(list...)
}

// knows reports whether the host recorded something of that container.
func (t *Timeline) knows(container string) bool {
	return container == "" || slices.ContainsFunc(t.Spans, func(s Span) bool { return s.Side == Host && s.Container == container })
}

const (
	// maxDoubt is the greatest uncertainty of a rate that is used: the
	// comparisons must be at least a hundred times their error apart.
	maxDoubt = 0.01
	// maxRate and its inverse bound the rates that are accepted.
	maxRate = 2
)

// mapping is a straight line from the guest's clock to the host's.
type mapping struct {
	guest, at        time.Duration // a comparison
	rate             float64       // the host's time for each of the guest's
	slack            time.Duration
	earliest, latest time.Duration
}

// newMapping uses both comparisons when they are far enough apart, so that a
// clock that runs fast or slow, as under TCG, is corrected; otherwise the better one.
func newMapping(first, now Clock, zero time.Time) mapping {
	better := first
	if now.Slack < first.Slack {
		better = now
	}
	m := mapping{guest: better.Guest, at: better.Host.Sub(zero), rate: 1, slack: better.Slack}
	passed := float64(now.Guest - first.Guest)
	if passed <= 0 || float64(first.Slack+now.Slack) > maxDoubt*passed {
		return m
	}
	rate := float64(now.Host.Sub(first.Host)) / passed
	if rate < 1.0/maxRate || rate > maxRate {
		return m
	}
	m.rate, m.slack = rate, max(first.Slack, now.Slack)
	return m
}

// host converts the guest's time to the host's.
func (m mapping) host(guest time.Duration) time.Duration {
	at := m.at + time.Duration(float64(guest-m.guest)*m.rate)
	return min(max(at, m.earliest), m.latest)
}

func (m mapping) span(s spans.Span) Span {
	start := m.host(s.Start)
	return Span{Side: Guest, Container: s.Container, Name: s.Name, Start: start, End: max(start, m.host(s.End))}
}
