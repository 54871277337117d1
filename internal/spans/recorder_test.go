package spans

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSpansAreInOrder(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	r := New(zero)
	r.Add("c", "inner", at(10), at(20))
	r.Add("", "late", at(50), at(60))
	r.Add("c", "outer", at(10), at(40))
	list, forgotten := r.Spans()
	want := []Span{
		{"c", "outer", 10 * time.Millisecond, 40 * time.Millisecond},
		{"c", "inner", 10 * time.Millisecond, 20 * time.Millisecond},
		{"", "late", 50 * time.Millisecond, 60 * time.Millisecond},
	}
	if diff := cmp.Diff(want, list); diff != "" || forgotten != 0 {
		t.Errorf("%d forgotten, spans (-want +got):\n%s", forgotten, diff)
	}
}

// The recorder of a long-lived pod has its boot and its last containers.
func TestRecorderIsBounded(t *testing.T) {
	const more = 1000
	zero := time.Now()
	r := New(zero)
	for i := range MaxSpans + more {
		at := zero.Add(time.Duration(i) * time.Millisecond)
		r.Add("", fmt.Sprint(i), at, at)
	}
	list, forgotten := r.Spans()
	if len(list) != MaxSpans || forgotten != more {
		t.Fatalf("%d spans, %d forgotten, want %d and %d", len(list), forgotten, MaxSpans, more)
	}
	for i, s := range list {
		want := i
		if i >= MaxFirst {
			want += more
		}
		if s.Name != fmt.Sprint(want) {
			t.Fatalf("span %d is %s, want %d", i, s.Name, want)
		}
	}
}

func TestRecorderFromManyGoroutines(t *testing.T) {
	r := New(time.Now())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				r.Begin(fmt.Sprint(i), "part")()
				r.Spans()
			}
		})
	}
	all.Wait()
	if list, forgotten := r.Spans(); len(list)+forgotten != 800 {
		t.Errorf("%d spans and %d forgotten, want 800 in all", len(list), forgotten)
	}
}

func TestNoRecorder(t *testing.T) {
	var r *Recorder
	r.Begin("c", "part")()
	r.Add("c", "part", time.Now(), time.Now())
	if list, forgotten := r.Spans(); list != nil || forgotten != 0 {
		t.Errorf("%v, %d forgotten, want nothing", list, forgotten)
	}
}

func BenchmarkSpan(b *testing.B) {
	r := New(time.Now())
	for b.Loop() {
		r.Begin("c", "part")()
	}
}
