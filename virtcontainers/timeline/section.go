package timeline

import (
	"cmp"
	"slices"
	"time"
)

// section is a part of a drawing with its own scale: the pod's boot, or one
// container's start. Otherwise a container that starts an hour after its pod
// would make all bars too short to be seen.
type section struct {
	// container is empty for the pod.
	container  string
	start, end time.Duration
	rows       []row
}

// row is one span, and how many spans of its side enclose it.
type row struct {
	Span
	depth int
}

// title is the section's heading.
func (s section) title() string {
	if s.container == "" {
		return "pod"
	}
	return "container " + s.container
}

// sections divides the spans, in the order of the sections' starts, the pod's
// first.
func (t *Timeline) sections() []section {
	at := map[string]int{}
	var list []section
	for _, s := range t.Spans {
		i, ok := at[s.Container]
		if !ok {
			i = len(list)
			at[s.Container] = i
			list = append(list, section{container: s.Container, start: s.Start})
		}
		list[i].rows = append(list[i].rows, row{Span: s})
		list[i].end = max(list[i].end, s.End)
	}
	for _, sec := range list {
		nest(sec.rows, Host)
		nest(sec.rows, Guest)
	}
	slices.SortStableFunc(list, func(a, b section) int {
		if (a.container == "") != (b.container == "") {
			return cmp.Compare(a.container, b.container)
		}
		return cmp.Compare(a.start, b.start)
	})
	return list
}

// nest finds the depths of one side's rows, which are in order.
func nest(rows []row, side Side) {
	var around []time.Duration // the ends of the spans around
	for i := range rows {
		if rows[i].Side != side {
			continue
		}
		for len(around) > 0 && around[len(around)-1] < rows[i].End {
			around = around[:len(around)-1]
		}
		rows[i].depth = len(around)
		if !rows[i].isEvent() {
			around = append(around, rows[i].End)
		}
	}
}

// scale maps a time to 0..1 of the section.
func (s section) scale(at time.Duration) float64 {
	if s.end == s.start {
		return 0
	}
	return float64(at-s.start) / float64(s.end-s.start)
}

// milliseconds is a time as drawings show it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
