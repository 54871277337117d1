package ginkgo

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Exception is a case of a suite that passes with runc and that a virtual machine
// cannot pass.
type Exception struct {
	// Name is the whole name, containers and case.
	Name string
	Why  string
}

// SkipPattern matches the names of the cases in the list and nothing else.
func SkipPattern(known []Exception) string {
	var names []string
	for _, k := range known {
		names = append(names, k.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return Pattern(names)
}

// Pattern matches the whole names of cases. A suite's own name precedes them
// (ginkgo, "Description-based filtering").
func Pattern(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(" + strings.Join(quoted, "|") + ")$"
}

// SideBySide formats the outcome for people: both counts, and each difference.
func SideBySide(runc, kata Results, known []Exception) string {
	var b strings.Builder
	b.WriteString(runc.Counts())
	b.WriteString(kata.Counts())
	for _, name := range slices.Sorted(maps.Keys(runc.Cases)) {
		a, k := runc.Cases[name], kata.Cases[name]
		if a.State == k.State {
			continue
		}
		why, _, _ := strings.Cut(k.Message, "\n")
		if i := indexOf(known, name); i >= 0 {
			why = "known: " + known[i].Why
		}
		fmt.Fprintf(&b, "  %s: runc %s, kata %s (%s)\n", name, a.State, k.State, why)
	}
	return b.String()
}

// Worse lists the cases that pass with runc, do not with Katabox, and are not in
// the list.
func Worse(runc, kata Results, known []Exception) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(runc.Cases)) {
		if runc.Cases[name].State == Passed && kata.Cases[name].State != Passed && indexOf(known, name) < 0 {
			found = append(found, name)
		}
	}
	return found
}

// Complaints lists unexpected results: a case that only runc passes, and one of
// the list that is not in the suite or, if the list was run, passes.
func Complaints(runc, kata Results, known []Exception, ranKnown bool) []string {
	var found []string
	for _, name := range Worse(runc, kata, known) {
		k := kata.Cases[name]
		found = append(found, fmt.Sprintf("%s: passes with runc; with kata %s: %s", name, k.State, k.Message))
	}
	for _, k := range known {
		if _, ok := runc.Cases[k.Name]; !ok {
			found = append(found, "known, but not in the suite: "+k.Name)
		} else if ranKnown && kata.Cases[k.Name].State == Passed {
			found = append(found, "known, but passes: "+k.Name)
		}
	}
	return found
}

func indexOf(known []Exception, name string) int {
	return slices.IndexFunc(known, func(k Exception) bool { return k.Name == name })
}
