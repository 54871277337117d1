package spans

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Span is one part of a start. Its times count from the recorder's zero. An
// event without a duration has its end at its start.
type Span struct {
	// Container is whose start it is a part of; empty is the pod's own.
	Container string
	Name      string
	Start     time.Duration
	End       time.Duration
}

const (
	// MaxFirst spans, those of a pod's boot, are never forgotten.
	MaxFirst = 64
	// MaxSpans is how many are remembered: beyond it, each new one takes the
	// place of the oldest that is not among the first.
	MaxSpans = 512
)

// Recorder remembers spans. Its methods may be called from any goroutine; a nil
// Recorder remembers nothing.
type Recorder struct {
	zero time.Time

	mu    sync.Mutex // guards what follows
	spans []Span
	// added counts all spans ever added.
	added int
}

// New makes a recorder whose spans count from zero, which needs a reading of
// the monotonic clock.
func New(zero time.Time) *Recorder { return &Recorder{zero: zero} }

// Zero is the time that the spans count from.
func (r *Recorder) Zero() time.Time { return r.zero }

// Add remembers a span. It does not block.
func (r *Recorder) Add(container, name string, start, end time.Time) {
	if r == nil {
		return
	}
	s := Span{Container: container, Name: name, Start: start.Sub(r.zero), End: end.Sub(r.zero)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.added < MaxSpans {
		r.spans = append(r.spans, s)
	} else {
		r.spans[MaxFirst+(r.added-MaxFirst)%(MaxSpans-MaxFirst)] = s
	}
	r.added++
}

// Begin begins a span, which the function that it returns ends and adds.
func (r *Recorder) Begin(container, name string) (end func()) {
	if r == nil {
		return func() {}
	}
	start := time.Now()
	return func() { r.Add(container, name, start, time.Now()) }
}

// Spans returns what is remembered, in the order of the starts, and how many
// were forgotten.
func (r *Recorder) Spans() (list []Span, forgotten int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	list, forgotten = slices.Clone(r.spans), r.added-len(r.spans)
	r.mu.Unlock()
	slices.SortStableFunc(list, func(a, b Span) int {
		// Of two that start together, the longer one is around the other.
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	return list, forgotten
}
