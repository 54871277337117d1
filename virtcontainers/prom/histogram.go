package prom

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// bounds are the buckets of every histogram, from the duration of a call to the
// timeout of a container's creation.
var bounds = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// maxActions bounds how many actions Durations distinguishes.
const maxActions = 64

// Durations is a histogram for each of a number of actions. The zero Durations is
// empty; its methods may be called from any goroutine, and do not block.
type Durations struct {
	mu      sync.Mutex // guards what follows
	actions map[string]*histogram
}

type histogram struct {
	// counts are by bucket; the last counts what is longer than all bounds.
	counts [16]uint64
	sum    time.Duration
}

// Observe counts one duration. Actions beyond maxActions are dropped.
func (d *Durations) Observe(action string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.actions[action]
	if h == nil {
		if len(d.actions) >= maxActions {
			return
		}
		if d.actions == nil {
			d.actions = make(map[string]*histogram)
		}
		h = new(histogram)
		d.actions[action] = h
	}
	i, _ := slices.BinarySearch(bounds, took)
	h.counts[i]++
	h.sum += took
}

// Write adds a family with a histogram for each action that was observed, in
// the given unit; label names the action. Without an observation there is no family.
func (d *Durations) Write(t *Text, name, help, label string, unit time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.actions) == 0 {
		return
	}
	t.Family(name, HistogramKind, help)
	for _, action := range slices.Sorted(maps.Keys(d.actions)) {
		d.actions[action].write(t, []string{label, action}, unit)
	}
}

func (h *histogram) write(t *Text, labels []string, unit time.Duration) {
	total := uint64(0)
	for i, count := range h.counts {
		total += count
		bound := "+Inf"
		if i < len(bounds) {
			bound = number(bounds[i].Seconds() / unit.Seconds())
		}
		t.sample("_bucket", float64(total), append(slices.Clone(labels), "le", bound))
	}
	t.sample("_sum", h.sum.Seconds()/unit.Seconds(), labels)
	t.sample("_count", float64(total), labels)
}
