package cri

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The states of a case.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped" // by the suite itself: the host or the runtime lacks something
	left    = "left out"
)

// outcome is the result of one case.
type outcome struct {
	state, message string
	took           time.Duration
}

// results are the outcomes of one run by the cases' names.
type results struct {
	name  string
	took  time.Duration
	cases map[string]outcome
}

// readReport reads the report that ginkgo wrote (ginkgo/v2, types.Report).
func readReport(path string) (results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return results{}, fmt.Errorf("read the suite's report: %w", err)
	}
	return parseReport(data)
}

func parseReport(data []byte) (results, error) {
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
		return results{}, fmt.Errorf("read the suite's report: %w", err)
	}
	r := results{cases: map[string]outcome{}}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			r.cases[name] = outcome{stateOf(spec.State, spec.Failure.Message), spec.Failure.Message, spec.RunTime}
		}
	}
	if len(r.cases) == 0 {
		return results{}, fmt.Errorf("the suite's report has no case: %.200s", data)
	}
	return r, nil
}

// stateOf determines the state. A case that skips itself gives a reason; one
// that is skipped by a flag does not.
func stateOf(state, message string) string {
	switch {
	case state == passed:
		return passed
	case state == skipped && message == "":
		return left
	case state == skipped:
		return skipped
	}
	return failed // and panicked, timedout, interrupted, aborted, pending
}

// count returns how many cases are in a state.
func (r results) count(state string) int {
	n := 0
	for _, c := range r.cases {
		if c.state == state {
			n++
		}
	}
	return n
}

func (r results) counts() string {
	return fmt.Sprintf("%-6s %3d passed, %3d failed, %3d skipped in %s\n",
		r.name, r.count(passed), r.count(failed), r.count(skipped), r.took.Round(time.Second))
}

// sideBySide formats the outcome for people: both counts, and each difference.
func sideBySide(runc, kata results, known []exception) string {
	var b strings.Builder
	b.WriteString(runc.counts())
	b.WriteString(kata.counts())
	for _, name := range slices.Sorted(maps.Keys(runc.cases)) {
		a, k := runc.cases[name], kata.cases[name]
		if a.state == k.state {
			continue
		}
		why := firstLine(k.message)
		if i := indexOf(known, name); i >= 0 {
			why = "known: " + known[i].why
		}
		fmt.Fprintf(&b, "  %s: runc %s, kata %s (%s)\n", name, a.state, k.state, why)
	}
	return b.String()
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// complaints lists unexpected results: a case that only runc passes, and one of
// the list that is not in the suite or, if the list was run, passes.
func complaints(runc, kata results, known []exception, ranKnown bool) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(runc.cases)) {
		a, k := runc.cases[name], kata.cases[name]
		if a.state == passed && k.state != passed && indexOf(known, name) < 0 {
			found = append(found, fmt.Sprintf("%s: passes with runc; with kata %s: %s", name, k.state, k.message))
		}
	}
	for _, k := range known {
		if _, ok := runc.cases[k.name]; !ok {
			found = append(found, "known, but not in the suite: "+k.name)
		} else if ranKnown && kata.cases[k.name].state == passed {
			found = append(found, "known, but passes: "+k.name)
		}
	}
	return found
}

func indexOf(known []exception, name string) int {
	return slices.IndexFunc(known, func(k exception) bool { return k.name == name })
}

// The comparison must find new, vanished and fixed differences.
func TestReportsCompare(t *testing.T) {
	const report = `[{"SpecReports":[
		{"LeafNodeType":"BeforeSuite","State":"passed"},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["a"],"LeafNodeText":"works","State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"new","State":"STATE","Failure":{"Message":"boom\nmore"}},
		{"LeafNodeType":"It","LeafNodeText":"mended","State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"meant","State":"STATE","Failure":{"Message":"no"}},
		{"LeafNodeType":"It","LeafNodeText":"not here","State":"skipped","Failure":{"Message":"no SELinux"}},
		{"LeafNodeType":"It","LeafNodeText":"benchmark","State":"skipped"}]}]`
	runc, err := parseReport([]byte(strings.ReplaceAll(report, "STATE", "passed")))
	if err != nil {
		t.Fatal(err)
	}
	kata, err := parseReport([]byte(strings.ReplaceAll(report, "STATE", "panicked")))
	if err != nil {
		t.Fatal(err)
	}
	runc.name, kata.name = "runc", "kata"
	list := []exception{{"mended", ""}, {"meant", "so it is"}, {"gone", ""}}
	got := strings.Join(complaints(runc, kata, list, true), "\n")
	want := "new: passes with runc; with kata failed: boom\nmore\nknown, but passes: mended\nknown, but not in the suite: gone"
	if got != want {
		t.Errorf("complaints:\n%s\nwant:\n%s", got, want)
	}
	got = sideBySide(runc, kata, list)
	want = "runc     4 passed,   0 failed,   1 skipped in 0s\nkata     2 passed,   2 failed,   1 skipped in 0s\n" +
		"  meant: runc passed, kata failed (known: so it is)\n  new: runc passed, kata failed (boom)\n"
	if got != want {
		t.Errorf("side by side:\n%s\nwant:\n%s", got, want)
	}
	if _, err := parseReport([]byte(`[]`)); err == nil {
		t.Error("an empty report was accepted")
	}
}
