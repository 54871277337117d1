package timeline

import (
	"slices"
	"testing"
	"time"
)

func TestParents(t *testing.T) {
	ms := func(side Side, container, name string, start, end int) Span {
		return Span{side, container, name, time.Duration(start) * time.Millisecond, time.Duration(end) * time.Millisecond}
	}
	for _, test := range []struct {
		name  string
		slack time.Duration
		spans []Span // in order
		want  []int
	}{
		{"none", 0, nil, []int{}},
		{"steps in a boot", 0, []Span{
			ms(Host, "", "boot", 0, 100), ms(Host, "", "vm", 0, 20), ms(Host, "", "qemu", 5, 20), ms(Host, "", "agent", 30, 90),
		}, []int{-1, 0, 1, 0}},
		{"equal spans", 0, []Span{ms(Host, "", "a", 0, 10), ms(Host, "", "b", 0, 10)}, []int{-1, 0}},
		{"containers apart", 0, []Span{ms(Host, "", "boot", 0, 100), ms(Host, "c", "create call", 10, 20)}, []int{-1, -1}},
		{"an event encloses nothing", 0, []Span{ms(Host, "c", "first output", 5, 5), ms(Host, "c", "other", 5, 5)}, []int{-1, -1}},
		{"an event in a span", 0, []Span{ms(Host, "c", "start call", 0, 9), ms(Host, "c", "first output", 5, 5)}, []int{-1, 0}},
		{"the guest in the host", 0, []Span{
			ms(Host, "c", "create call", 0, 50), ms(Host, "c", "create", 10, 40), ms(Guest, "c", "create", 11, 39), ms(Guest, "c", "configure", 12, 13),
		}, []int{-1, 0, 1, 2}},
		{"the guest's clock is off", 2 * time.Millisecond, []Span{ms(Guest, "c", "create", 9, 41), ms(Host, "c", "create", 10, 40)}, []int{1, -1}},
		{"further off than it can be", time.Millisecond, []Span{ms(Guest, "c", "create", 8, 41), ms(Host, "c", "create", 10, 40)}, []int{-1, -1}},
		{"the host is not in the guest", time.Second, []Span{ms(Guest, "c", "create", 0, 50), ms(Host, "c", "create", 10, 40)}, []int{1, -1}},
		{"overlap", 0, []Span{ms(Host, "", "a", 0, 10), ms(Host, "", "b", 5, 15)}, []int{-1, -1}},
	} {
		tl := &Timeline{Slack: test.slack, Spans: test.spans}
		if got := tl.Parents(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
