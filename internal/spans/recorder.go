package spans

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Span is one part of a start. Its times are relative to the recorder's zero. An
// event without a duration ends when it starts.
type Span struct {
	// Container is the container that is started; empty for the pod itself.
	Container string
	Name      string
	Start     time.Duration
	End       time.Duration
}

const (
	// MaxFirst is the number of spans, those of a pod's boot, that are never
	// dropped.
	MaxFirst = 64
	// MaxSpans is how many spans are kept: beyond that, each new one replaces the
	// oldest that is not among the first.
	MaxSpans = 512
)

// Recorder records spans. Its methods may be called from any goroutine; a nil
// Recorder records nothing.
type Recorder struct {
	zero time.Time

	mu    sync.Mutex // guards what follows
	spans []Span
	// added counts all spans ever added.
	added int
}

// New makes a recorder whose spans are relative to zero, which needs a reading of
// the monotonic clock.
func New(zero time.Time) *Recorder { return &Recorder{zero: zero} }

// Zero returns the time to which the spans are relative.
func (r *Recorder) Zero() time.Time { return r.zero }

// Add records a span. It does not block.
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

// DropContainers drops the spans of all containers, which ended before the pod
// began.
func (r *Recorder) DropContainers() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = slices.DeleteFunc(r.spans, func(s Span) bool { return s.Container != "" })
	r.added = len(r.spans)
}

// Begin begins a span; the function that it returns ends and records it.
func (r *Recorder) Begin(container, name string) (end func()) {
	if r == nil {
		return func() {}
	}
	start := time.Now()
	return func() { r.Add(container, name, start, time.Now()) }
}

// Spans returns the recorded spans in order of their start, and how many were
// dropped.
func (r *Recorder) Spans() (list []Span, forgotten int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	list, forgotten = slices.Clone(r.spans), r.added-len(r.spans)
	r.mu.Unlock()
	slices.SortStableFunc(list, func(a, b Span) int {
		// If two start together, the longer one encloses the other.
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	return list, forgotten
}
