package monitor

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// familyJSON is a metric with all its samples.
type familyJSON struct {
	Name    string       `json:"name"`
	Help    string       `json:"help,omitempty"`
	Type    string       `json:"type"`
	Samples []sampleJSON `json:"samples"`
}

// sampleJSON has a value, or, in a histogram or summary, a count and a sum.
type sampleJSON struct {
	Labels map[string]string `json:"labels,omitempty"`
	Value  *number           `json:"value,omitempty"`
	Count  *uint64           `json:"count,omitempty"`
	Sum    *number           `json:"sum,omitempty"`
	// Buckets are cumulative counts by their upper bounds.
	Buckets map[string]uint64 `json:"buckets,omitempty"`
}

// number is a JSON number, or a string if there is no such number: NaN, +Inf.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(bound(f))
	}
	return json.Marshal(float64(n))
}

// bound is a number as in Prometheus's text format.
func bound(f float64) string {
	if math.IsInf(f, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// MarshalJSON returns a list of the metrics, in the order of their names.
func (f Families) MarshalJSON() ([]byte, error) {
	list := make([]familyJSON, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		family := f[name]
		one := familyJSON{Name: name, Help: family.GetHelp(), Type: strings.ToLower(family.GetType().String()), Samples: []sampleJSON{}}
		for _, m := range family.GetMetric() {
			one.Samples = append(one.Samples, sampleOf(m))
		}
		list = append(list, one)
	}
	return json.Marshal(list)
}

func sampleOf(m *dto.Metric) sampleJSON {
	s := sampleJSON{Labels: make(map[string]string)}
	for _, l := range m.GetLabel() {
		s.Labels[l.GetName()] = l.GetValue()
	}
	switch {
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		s.Count, s.Sum = new(h.GetSampleCount()), new(number(h.GetSampleSum()))
		s.Buckets = make(map[string]uint64)
		for _, b := range h.GetBucket() {
			s.Buckets[bound(b.GetUpperBound())] = b.GetCumulativeCount()
		}
	case m.GetSummary() != nil:
		s.Count, s.Sum = new(m.GetSummary().GetSampleCount()), new(number(m.GetSummary().GetSampleSum()))
	default: // of these a sample has one, and the others are 0
		s.Value = new(number(m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()))
	}
	return s
}
