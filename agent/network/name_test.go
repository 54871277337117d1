package network

import (
	"maps"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
)

func TestPlanNames(t *testing.T) {
	tests := map[string]struct {
		have, want map[int]string
		movable    []int
		steps      int
		fails      func(error) bool
	}{
		"nothing":              {have: map[int]string{1: "lo"}},
		"named already":        {have: map[int]string{2: "eth0"}, want: map[int]string{2: "eth0"}},
		"one":                  {have: map[int]string{2: "eth0"}, want: map[int]string{2: "net1"}, steps: 1},
		"swap":                 {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "a"}, steps: 3},
		"ring":                 {have: map[int]string{2: "a", 3: "b", 4: "c"}, want: map[int]string{2: "b", 3: "c", 4: "a"}, steps: 5},
		"chain":                {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "c"}, steps: 3},
		"one in the way":       {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b"}, movable: []int{3}, steps: 2},
		"temporary is taken":   {have: map[int]string{2: "a", 3: "b", 4: "nic3"}, want: map[int]string{2: "b"}, movable: []int{3}, steps: 2},
		"temporary is wanted":  {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b", 3: "nic3"}, steps: 3},
		"of another interface": {have: map[int]string{2: "a", 3: "b"}, want: map[int]string{2: "b"}, fails: errdefs.IsAlreadyExists},
		"not there":            {have: map[int]string{3: "b"}, want: map[int]string{2: "a"}, fails: errdefs.IsNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plan, err := planNames(test.have, test.want, func(i int) bool { return slices.Contains(test.movable, i) })
			if test.fails != nil {
				if !test.fails(err) {
					t.Errorf("%v, %v", plan, err)
				}
				return
			}
			if err != nil || len(plan) != test.steps {
				t.Errorf("%d steps %v, %v, want %d", len(plan), plan, err, test.steps)
			}
			now := maps.Clone(test.have)
			for _, step := range plan {
				if now[step.index] != step.from || slices.Contains(slices.Collect(maps.Values(now)), step.to) {
					t.Fatalf("step %v in %v", step, now)
				}
				now[step.index] = step.to
			}
			for index, name := range test.want {
				if now[index] != name {
					t.Errorf("%d is %s, want %s", index, now[index], name)
				}
			}
		})
	}
}
