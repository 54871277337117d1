package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
)

// counts are numbers of tests and subtests. A command without events is one
// test.
type counts struct{ passed, failed, skipped, retried int }

func (c counts) plus(d counts) counts {
	return counts{c.passed + d.passed, c.failed + d.failed, c.skipped + d.skipped, c.retried + d.retried}
}

// count judges each test of a suite after all tries.
func (r *report) count() counts {
	var c counts
	if r.notRun != "" {
		return counts{failed: 1}
	}
	for _, f := range r.faults {
		switch {
		case f.second == pass:
			c.retried++
		case f.test == "" || r.outcome.tally.byName[f.pkg] == nil:
			c.failed++ // it is not one of the tests that are counted below
		}
	}
	for _, p := range r.outcome.tally.packages {
		c = c.plus(p.count(r.faults))
	}
	if len(r.outcome.tally.packages) == 0 && c.failed == 0 {
		c.passed++
	}
	return c
}

// count counts a package's tests. A failed one counts as passed when each
// fault that explains it passed on the second try.
func (p *pkgResult) count(faults []*fault) counts {
	var c counts
	for _, t := range p.tests {
		switch t.outcome {
		case pass:
			c.passed++
		case skip:
			c.skipped++
		default:
			if slices.ContainsFunc(faults, func(f *fault) bool { return f.second != pass && f.explains(p, t) }) {
				c.failed++
			} else {
				c.passed++
			}
		}
	}
	if p.outcome == pass && skippedWhole(p) != "" {
		c.skipped++
	}
	return c
}

// explains reports whether a test failed because of the fault.
func (f *fault) explains(p *pkgResult, t *result) bool {
	if f.pkg != p.name {
		return false
	}
	return f.test == "" || f.test == t.name || isBelow(f.test, t.name)
}

// skippedWhole returns the reason why a TestMain ran no test; "" if it did.
func skippedWhole(p *pkgResult) string {
	for line := range strings.Lines(string(p.output)) {
		if reason, ok := strings.CutPrefix(line, "SKIP: "); ok {
			return strings.TrimSpace(reason)
		}
	}
	return ""
}

// summarize prints the skips, the second tries, the failures, a table and the
// last line. It reports whether all passed.
func summarize(w io.Writer, reports []*report) bool {
	printSkips(w, reports)
	printSecondTries(w, reports)
	printFailures(w, reports)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "suite\ttests\tpassed\tfailed\tskipped\tretried\tseconds\t")
	var all counts
	ok := true
	for _, r := range reports {
		c := r.count()
		all, ok = all.plus(c), ok && r.passed() && c.failed == 0
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t\n", r.suite.name,
			c.passed+c.failed+c.skipped, c.passed, c.failed, c.skipped, c.retried, r.took.Seconds())
	}
	_ = table.Flush() // an output that cannot be written has no reader
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped)
	return ok
}

// printSkips lists each reason once, with the tests that gave it.
func printSkips(w io.Writer, reports []*report) {
	tests := map[string][]string{}
	for _, r := range reports {
		if r.notRun != "" {
			continue
		}
		for _, p := range r.outcome.tally.packages {
			for _, t := range p.tests {
				if t.outcome == skip {
					reason := skipReason(t.output)
					tests[reason] = append(tests[reason], r.suite.name+" "+t.name)
				}
			}
			if reason := skippedWhole(p); reason != "" {
				tests[reason] = append(tests[reason], r.suite.name+" "+shortPackage(p.name))
			}
		}
	}
	reasons := make([]string, 0, len(tests))
	for reason := range tests {
		reasons = append(reasons, reason)
	}
	sort.Strings(reasons)
	for _, reason := range reasons {
		fmt.Fprintf(w, "SKIP %s: %s\n", few(tests[reason]), reason)
	}
}

// few returns the first of many names.
func few(all []string) string {
	if len(all) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:3], ", "), len(all)-3)
	}
	return strings.Join(all, ", ")
}

func printSecondTries(w io.Writer, reports []*report) {
	for _, r := range reports {
		for _, f := range r.faults {
			if f.second == pass {
				fmt.Fprintf(w, "\n**** PASSED ON THE SECOND TRY: %s\n     the first try %s; its whole output is among the results; its end:\n%s\n\n",
					f.name(), f.why, indent(f.lastLines(15)))
			}
		}
	}
}

func printFailures(w io.Writer, reports []*report) {
	for _, r := range reports {
		if r.notRun != "" {
			fmt.Fprintf(w, "FAIL %s did not run: %s\n", r.suite.name, r.notRun)
		}
		for _, f := range r.faults {
			if f.second != pass {
				tries := ""
				if f.second == fail {
					tries = ", twice"
				}
				fmt.Fprintf(w, "FAIL %s%s\n", f, tries)
			}
		}
	}
}

func indent(text string) string { return "     | " + strings.ReplaceAll(text, "\n", "\n     | ") }
