package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suite is a row of the table: what one command runs.
type suite struct {
	name string
	// packages are patterns for "go test". Without any, command is run.
	packages []string
	// tests are the top-level tests to run, each of which must exist. Empty
	// means all tests of the packages.
	tests []string
	// flags are further flags of "go test".
	flags []string
	// command is run instead of "go test". Its exit code is its verdict, or
	// with events set, the events of "go test -json" that it prints.
	command []string
	events  bool
	// env is added to the environment.
	env []string
	// needs are the suites that must have passed before this one starts.
	needs []string
	// uses are host resources that no other suite may use at the same time.
	uses []string
	// vm marks suites that boot machines. A lane prefers a suite of the kind
	// that does not run beside it.
	vm bool
	// timeout bounds the suite. It is several times what an idle machine of
	// two cores needs.
	timeout time.Duration
	// once makes each failure final: formatting does not improve by itself.
	once bool
	// drawn is the name of a group of suites of which a run has one, drawn anew each time,
	// unless it names its suites. They test much the same.
	drawn string
	// atOnce gives the second try immediately: other suites wait for this one.
	// It is for suites that fail because of the network: downloads.
	atOnce bool
}

// goTest returns the command line that runs the suite's packages, or one of
// them, with a -run pattern. "" leaves either as the suite has it.
func (s suite) goTest(pkg, pattern string) []string {
	packages := s.packages
	if pkg != "" {
		packages = []string{pkg}
	}
	if pattern == "" && len(s.tests) > 0 {
		pattern = "^(" + strings.Join(s.tests, "|") + ")$"
	}
	args := []string{"go", "test", "-json", "-count=1", "-vet=off", "-timeout", s.timeout.String()} // the suite vet has all of it
	args = append(args, s.flags...)
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	return append(args, packages...)
}

// args returns the command line of a suite's first run.
func (s suite) args() []string {
	if len(s.packages) == 0 {
		return s.command
	}
	return s.goTest("", "")
}

// runPattern returns the -run pattern that matches one test or subtest by its
// full name. The testing package splits pattern and name alike at slashes.
func runPattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// sharded splits a suite that lists its tests into n, whose names end in /1 to
// /n. Neighbours in the list, often of one file and of like cost, go to
// different shards.
func sharded(s suite, n int) []suite {
	var shards []suite
	for i := range n {
		part := s
		part.name = fmt.Sprintf("%s/%d", s.name, i+1)
		part.tests = nil
		for j := i; j < len(s.tests); j += n {
			part.tests = append(part.tests, s.tests[j])
		}
		shards = append(shards, part)
	}
	return shards
}

// drawOne leaves one suite of each group.
func drawOne(all []suite) []suite {
	groups := map[string][]string{}
	for _, s := range all {
		groups[s.drawn] = append(groups[s.drawn], s.name)
	}
	kept := map[string]string{}
	for group, names := range groups {
		kept[group] = names[rand.IntN(len(names))]
	}
	return slices.DeleteFunc(slices.Clone(all), func(s suite) bool { return s.drawn != "" && s.name != kept[s.drawn] })
}

// chosen returns the suites that words name, with all that they need, in the
// table's order. A word is a name, or the part of it before a slash. Without any it
// returns all, but one of each group that is drawn.
func chosen(all []suite, words []string) ([]suite, error) {
	if len(words) == 0 {
		return drawOne(all), nil
	}
	wanted := map[string]bool{}
	for _, word := range words {
		named := slices.DeleteFunc(slices.Clone(all), func(s suite) bool {
			return s.name != word && !strings.HasPrefix(s.name, word+"/")
		})
		if len(named) == 0 {
			return nil, fmt.Errorf("-only %s: the tier has no such suite; -list shows those it has", word)
		}
		for _, s := range named {
			need(all, s.name, wanted)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s suite) bool { return !wanted[s.name] }), nil
}

// need marks a suite and all that it needs.
func need(all []suite, name string, wanted map[string]bool) {
	if wanted[name] {
		return
	}
	wanted[name] = true
	for _, s := range all {
		if s.name == name {
			for _, n := range s.needs {
				need(all, n, wanted)
			}
		}
	}
}
