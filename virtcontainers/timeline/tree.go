package timeline

import "time"

// Parents returns for each of the timeline's spans the index of the shortest
// span that encloses it, or -1 if none does. Both are of the same container. A
// span of the host is enclosed by the host's only, one of the guest by either
// side's: the host's count as longer by the error of the guest's clock.
func (t *Timeline) Parents() []int {
	parents := make([]int, len(t.Spans))
	for i, s := range t.Spans {
		parents[i] = -1
		for j, outer := range t.Spans {
			// Of two equal spans the first is the outer one.
			if outer.Side == s.Side && j >= i || !t.encloses(outer, s) {
				continue
			}
			if parents[i] < 0 || outer.took() <= t.Spans[parents[i]].took() {
				parents[i] = j
			}
		}
	}
	return parents
}

func (t *Timeline) encloses(outer, inner Span) bool {
	if outer.Container != inner.Container || outer.isEvent() || outer.Side == Guest && inner.Side == Host {
		return false
	}
	var slack time.Duration
	if outer.Side != inner.Side {
		slack = t.Slack
	}
	return outer.Start-slack <= inner.Start && inner.End <= outer.End+slack
}

func (s Span) took() time.Duration { return s.End - s.Start }
