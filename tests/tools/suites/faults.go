package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// fault is a failure that explains why a suite did not pass.
type fault struct {
	suite suite
	// pkg and test name what failed: a test, a whole package if test is "", the
	// whole command if both are.
	pkg, test string
	// why is one line; output is everything that was printed.
	why    string
	output []byte
	// final means that there is no second try.
	final bool
	// second is how the second try ended: "" while there was none, pass, fail.
	second string
}

// name returns what the fault is called in reports.
func (f *fault) name() string {
	words := []string{f.suite.name}
	if f.pkg != "" {
		words = append(words, shortPackage(f.pkg))
	}
	if f.test != "" {
		words = append(words, f.test)
	}
	return strings.Join(words, " ")
}

// shortPackage drops the module's path.
func shortPackage(pkg string) string { return strings.TrimPrefix(pkg, modulePath+"/") }

const modulePath = "github.com/katabox/katabox"

// outcome is the result of one run of a suite's command.
type outcome struct {
	tally *tally
	// stderr is the end of the command's standard error.
	stderr []byte
	// err is the command's error: nil, an exit code, or the reason why it did
	// not run.
	err error
}

// faults says why the run did not pass; none means that it did.
func faults(s suite, o outcome) []*fault {
	var found []*fault
	for _, f := range o.tally.packages {
		found = append(found, packageFaults(s, f)...)
	}
	found = append(found, absent(s, o, len(found) > 0)...)
	if o.err != nil && len(found) == 0 {
		output := slices.Concat(o.tally.noise, o.stderr)
		found = append(found, &fault{suite: s, why: o.err.Error(), output: output})
	}
	for _, f := range found {
		f.final = f.final || s.once
	}
	return found
}

// packageFaults returns the faults of one package. A package that broke off (a
// panic, a timeout, an exit in a test) is a fault as a whole: otherwise tests
// that had not begun would be forgotten.
func packageFaults(s suite, f *pkgResult) []*fault {
	if f.outcome == pass || f.outcome == skip {
		return nil
	}
	broke := !f.ended || len(f.unfinished()) > 0
	leaves := f.failedLeaves()
	if broke || len(leaves) == 0 {
		whole := &fault{suite: s, pkg: f.name, why: "failed outside of its tests", output: f.all(), final: f.race || f.unbuilt}
		switch names := f.unfinished(); {
		case f.unbuilt:
			whole.why = "does not build"
		case len(names) > 0:
			whole.why = "broke off in " + strings.Join(names, ", ")
		case broke:
			whole.why = "broke off"
		}
		return []*fault{whole}
	}
	var found []*fault
	for _, leaf := range leaves {
		one := &fault{suite: s, pkg: f.name, test: leaf.name, why: "failed", output: f.outputOf(leaf.name), final: f.race}
		if f.race {
			one.why = "failed, and its package has a data race"
		}
		found = append(found, one)
	}
	return found
}

// absent returns faults for the listed tests that had no event although the run
// succeeded.
func absent(s suite, o outcome, failed bool) []*fault {
	if failed || o.err != nil || len(s.tests) == 0 {
		return nil
	}
	var found []*fault
	for _, name := range s.tests {
		ran := slices.ContainsFunc(o.tally.packages, func(f *pkgResult) bool { return f.byName[name] != nil })
		if !ran {
			found = append(found, &fault{suite: s, test: name, why: "did not run: there is no such test", final: true})
		}
	}
	return found
}

// outputOf returns what a test and its parents printed.
func (f *pkgResult) outputOf(test string) []byte {
	var all []byte
	for _, r := range f.tests {
		if r.name == test || isBelow(test, r.name) {
			all = append(all, r.output...)
		}
	}
	return all
}

// all returns what the package printed, without the output of tests that
// passed.
func (f *pkgResult) all() []byte {
	var all []byte
	for _, r := range f.tests {
		if r.outcome != pass && r.outcome != skip {
			all = append(all, r.output...)
		}
	}
	return append(all, f.output...)
}

// lastLines returns the last n lines of what the fault printed.
func (f *fault) lastLines(n int) string {
	lines := bytes.Split(bytes.TrimRight(f.output, "\n"), []byte{'\n'})
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte{'\n'}))
}

func (f *fault) String() string { return fmt.Sprintf("%s: %s", f.name(), f.why) }
