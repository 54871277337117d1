package ginkgo

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// The states of a case.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped" // by the suite itself: the host or the runtime lacks something
	Left    = "left out"
)

// Outcome is the result of one case.
type Outcome struct {
	State, Message string
	Took           time.Duration
}

// Results are the outcomes of one run by the cases' names.
type Results struct {
	Name  string
	Took  time.Duration
	Cases map[string]Outcome
}

// Read reads the report that a suite wrote (ginkgo/v2, types.Report).
func Read(path string) (Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Results{}, fmt.Errorf("read the suite's report: %w", err)
	}
	return parse(data)
}

func parse(data []byte) (Results, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			RunTime                 time.Duration
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return Results{}, fmt.Errorf("read the suite's report: %w", err)
	}
	r := Results{Cases: map[string]Outcome{}}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			r.Cases[name] = Outcome{stateOf(spec.State, spec.Failure.Message), spec.Failure.Message, spec.RunTime}
		}
	}
	if len(r.Cases) == 0 {
		return Results{}, fmt.Errorf("the suite's report has no case: %.200s", data)
	}
	return r, nil
}

// stateOf determines the state. A case that skips itself gives a reason; one
// that is skipped by a flag does not.
func stateOf(state, message string) string {
	switch {
	case state == Passed:
		return Passed
	case state == Skipped && message == "":
		return Left
	case state == Skipped:
		return Skipped
	}
	return Failed // and panicked, timedout, interrupted, aborted, pending
}

// Count returns how many cases are in a state.
func (r Results) Count(state string) int {
	n := 0
	for _, c := range r.Cases {
		if c.State == state {
			n++
		}
	}
	return n
}

// Counts is a line for people.
func (r Results) Counts() string {
	return fmt.Sprintf("%-6s %3d passed, %3d failed, %3d skipped in %s\n",
		r.Name, r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Took.Round(time.Second))
}
