package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxSecondTries is how many faults of one run get a second try. With more than
// that none gets one, and the run fails: so many are no accident.
const maxSecondTries = 8

// secondTries runs again what failed and is not final, one fault at a time and
// with nothing beside it.
func (r *runner) secondTries(ctx context.Context, reports []*report) {
	var open []*fault
	for _, rep := range reports {
		for _, f := range rep.faults {
			if !f.final && f.second == "" {
				open = append(open, f)
			}
		}
	}
	if len(open) > maxSecondTries {
		r.screen.say("%d failures: a second try is for at most %d in one run, so there is none", len(open), maxSecondTries)
		return
	}
	for i, f := range open {
		if ctx.Err() != nil {
			return
		}
		r.secondTry(ctx, f, fmt.Sprintf("second-try-%d", i+1), reports)
	}
}

// secondTry runs the fault's test, package or command again, and notes the
// result. The first try's output is kept in a file.
func (r *runner) secondTry(ctx context.Context, f *fault, name string, reports []*report) {
	r.screen.say("second try: %s", f.name())
	r.keep(name+"-first-output.txt", f.output)
	o := r.run(ctx, f.suite, f.again(), name)
	if f.lacksOthers(o) {
		top, _, _ := strings.Cut(f.test, "/")
		r.screen.say("second try: %s fails without its other cases: all of them", top)
		o = r.run(ctx, f.suite, f.suite.goTest(f.pkg, runPattern(top)), name+"-whole")
	}
	again := faults(f.suite.only(f), o)
	f.second = pass
	if len(again) > 0 || !f.ran(o) {
		f.second = fail
		if len(again) == 0 {
			f.output = append(f.output, "\n--- the second try did not run it ---\n"...)
		}
		for _, a := range again {
			f.output = append(f.output, "\n--- second try ---\n"...)
			f.output = append(f.output, a.output...)
		}
		r.screen.show(f)
	} else if f.test == "" {
		adopt(reports, f, o)
	}
	r.screen.say("second try: %s: %s", f.name(), f.second)
}

// again returns the command line of the second try.
func (f *fault) again() []string {
	switch {
	case len(f.suite.packages) == 0 || f.pkg == "":
		return f.suite.args()
	case f.test == "":
		return f.suite.goTest(f.pkg, "")
	}
	return f.suite.goTest(f.pkg, runPattern(f.test))
}

// shellLine returns the line for a shell that does what the second try does, with
// the suite's variables, for people to read.
func (f *fault) shellLine() string {
	words := slices.Clone(f.suite.env)
	for _, word := range f.again() {
		if strings.ContainsAny(word, "^$()|*' ") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		if word != "-json" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// only returns the suite by which the second try of a fault is judged: if one
// test is run again, the other listed tests need not have run.
func (s suite) only(f *fault) suite {
	if f.test != "" {
		s.tests = nil
	}
	return s
}

// ran reports whether the second try ran what had failed, and it passed. A test
// that is skipped now did not run.
func (f *fault) ran(o outcome) bool {
	if f.pkg == "" {
		return true
	}
	p := o.tally.byName[f.pkg]
	if p == nil || p.outcome != pass {
		return false
	}
	if f.test == "" {
		return true
	}
	t := p.byName[f.test]
	return t != nil && t.outcome == pass
}

// lacksOthers reports whether the case that was run again passed, and the test that it
// belongs to did not: it may judge all its cases together.
func (f *fault) lacksOthers(o outcome) bool {
	p := o.tally.byName[f.pkg]
	if p == nil || p.outcome != fail || !strings.Contains(f.test, "/") {
		return false
	}
	t := p.byName[f.test]
	return t != nil && t.outcome == pass
}

// adopt puts the results of a second try of a whole package, or of a whole
// command, in place of the first ones.
func adopt(reports []*report, f *fault, o outcome) {
	for _, rep := range reports {
		if rep.suite.name != f.suite.name {
			continue
		}
		if f.pkg == "" {
			rep.outcome = o
			return
		}
		for i, p := range rep.outcome.tally.packages {
			if p.name == f.pkg {
				rep.outcome.tally.packages[i] = o.tally.byName[f.pkg]
			}
		}
	}
}

// keep writes a file among the results.
func (r *runner) keep(name string, data []byte) {
	if err := writeFile(filepath.Join(r.results, name), data); err != nil {
		r.screen.say("%v", err)
	}
}
