package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// take starts what may start now, without waiting.
func take(s *schedule) string {
	s.mu.Lock()
	can := s.pick() >= 0
	s.mu.Unlock()
	if !can {
		return "-"
	}
	next, _ := s.next()
	return next.name
}

func TestScheduleOrder(t *testing.T) {
	s := newSchedule([]suite{
		{name: "build", uses: []string{"bin"}},
		{name: "tools", uses: []string{"bin"}},
		{name: "vet"},
		{name: "pods", vm: true, needs: []string{"build"}},
		{name: "more pods", vm: true, needs: []string{"build"}},
		{name: "units", needs: []string{"build"}},
	})
	var got []string
	step := func(finished string) {
		if finished != "" {
			s.finish(&report{suite: suite{name: finished}})
		}
		got = append(got, take(s))
	}
	step("")      // the first
	step("")      // tools would write bin too
	step("")      // all others need the build
	step("build") // machines go first when none runs
	step("vet")   // beside machines, what has none
	step("tools") // in the table's order
	step("units") // nothing else is left
	want := []string{"build", "vet", "-", "pods", "tools", "units", "more pods"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}
}
