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
	// pkg and test say what failed: a test, a whole package when test is "",
	// the whole command when both are.
	pkg, test string
	// why is one line; output is all that was printed.
	why    string
	output []byte
	// final means that there is no second try.
	final bool
	// second is how the second try ended: "" while there was none, pass, fail.
	second string
}

// name is what a reader calls the fault.
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

// outcome is all that one run of a suite's command gave.
type outcome struct {
	tally *tally
	// stderr is its end.
	stderr []byte
	// err is the command's: nil, an exit code, or what kept it from running.
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

// packageFaults are those of one package. A package that broke off (a panic, a
// timeout, an exit in a test) is a fault as a whole: tests that had not begun
// would be forgotten otherwise.
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

// absent are the listed tests of which nothing was heard although the run
// went well.
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

// outputOf is what a test and those above it printed.
func (f *pkgResult) outputOf(test string) []byte {
	var all []byte
	for _, r := range f.tests {
		if r.name == test || isBelow(test, r.name) {
			all = append(all, r.output...)
		}
	}
	return all
}

// all is what the package printed, without that of tests that passed.
func (f *pkgResult) all() []byte {
	var all []byte
	for _, r := range f.tests {
		if r.outcome != pass && r.outcome != skip {
			all = append(all, r.output...)
		}
	}
	return append(all, f.output...)
}

// lastLines are the last n lines of what the fault printed.
func (f *fault) lastLines(n int) string {
	lines := bytes.Split(bytes.TrimRight(f.output, "\n"), []byte{'\n'})
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte{'\n'}))
}

func (f *fault) String() string { return fmt.Sprintf("%s: %s", f.name(), f.why) }
