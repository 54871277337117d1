package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of "go test -json" (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// The outcomes of a test, in test2json's words.
const (
	pass = "pass"
	fail = "fail"
	skip = "skip"
)

// maxOutput bounds what is kept of one test's output, in bytes. The suite's
// log has all of it.
const maxOutput = 1 << 20

// result is how one test ended; outcome is "" until it has ended.
type result struct {
	pkg, name string
	outcome   string
	elapsed   time.Duration
	output    []byte // nil when it passed
	began     time.Time
}

// pkgResult is the result and output of a package in one run.
type pkgResult struct {
	name    string
	outcome string
	output  []byte // outside of tests
	tests   []*result
	byName  map[string]*result
	// ended is set when the testing package has printed its verdict, which a
	// program that panics or exits by itself does not do.
	ended bool
	// race is set when the race detector has reported a race.
	race bool
	// unbuilt is set when the tests could not be compiled.
	unbuilt bool
	elapsed time.Duration
}

// tally collects the events of one command. Its callbacks may be nil.
type tally struct {
	packages []*pkgResult
	byName   map[string]*pkgResult
	builds   map[string][]byte // compiler output by import path
	noise    []byte            // lines that are not events, and events without a package

	onBegin   func(*result)
	onTest    func(*result)
	onPackage func(*pkgResult)
	log       io.Writer
}

func newTally(log io.Writer) *tally {
	return &tally{byName: map[string]*pkgResult{}, builds: map[string][]byte{}, log: log}
}

// read consumes r to its end.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			t.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (t *tally) line(line []byte) {
	var e event
	if line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Action == "" {
		e = event{Action: "output", Output: string(line)}
	}
	_, _ = io.WriteString(t.log, e.Output) // the log is a help, not a result
	switch {
	case e.Action == "build-output":
		t.builds[e.ImportPath] = grow(t.builds[e.ImportPath], e.Output)
	case e.Package == "":
		t.noise = grow(t.noise, e.Output)
	case e.Test == "":
		t.ofPackage(t.pkg(e.Package), e)
	default:
		t.ofTest(t.pkg(e.Package), e)
	}
}

func (t *tally) pkg(name string) *pkgResult {
	f := t.byName[name]
	if f == nil {
		f = &pkgResult{name: name, byName: map[string]*result{}}
		t.byName[name] = f
		t.packages = append(t.packages, f)
	}
	return f
}

func (t *tally) ofPackage(f *pkgResult, e event) {
	switch e.Action {
	case "output":
		f.note(e.Output)
		f.output = grow(f.output, e.Output)
		if e.Output == "PASS\n" || e.Output == "FAIL\n" {
			f.ended = true
		}
	case pass, fail, skip:
		f.outcome, f.elapsed = e.Action, seconds(e.Elapsed)
		if e.FailedBuild != "" {
			f.unbuilt = true
			f.output = append(t.builds[e.FailedBuild], f.output...)
		}
		if t.onPackage != nil {
			t.onPackage(f)
		}
	}
}

func (t *tally) ofTest(f *pkgResult, e event) {
	r := f.byName[e.Test]
	if r == nil {
		r = &result{pkg: f.name, name: e.Test, began: time.Now()}
		f.byName[e.Test] = r
		f.tests = append(f.tests, r)
		if t.onBegin != nil {
			t.onBegin(r)
		}
	}
	switch e.Action {
	case "output":
		f.note(e.Output)
		r.output = grow(r.output, e.Output)
	case pass, fail, skip:
		r.outcome, r.elapsed = e.Action, seconds(e.Elapsed)
		if r.outcome == pass {
			r.output = nil
		}
		if t.onTest != nil {
			t.onTest(r)
		}
	}
}

// note searches output for the race detector's report (the report's first line,
// or the testing package's).
func (f *pkgResult) note(output string) {
	if strings.Contains(output, "WARNING: DATA RACE") || strings.Contains(output, "race detected during execution") {
		f.race = true
	}
}

// unfinished returns the tests that began and did not end.
func (f *pkgResult) unfinished() []string {
	var names []string
	for _, r := range f.tests {
		if r.outcome == "" {
			names = append(names, r.name)
		}
	}
	return names
}

// failedLeaves returns the failed tests without a failed subtest: a parent
// fails with its subtests.
func (f *pkgResult) failedLeaves() []*result {
	var failed []*result
	for _, r := range f.tests {
		if r.outcome == fail {
			failed = append(failed, r)
		}
	}
	return slices.DeleteFunc(slices.Clone(failed), func(r *result) bool {
		return slices.ContainsFunc(failed, func(other *result) bool { return isBelow(other.name, r.name) })
	})
}

// isBelow reports whether test is a subtest of parent, at any depth.
func isBelow(test, parent string) bool { return strings.HasPrefix(test, parent+"/") }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// grow appends text up to maxOutput bytes.
func grow(to []byte, text string) []byte {
	if len(to) >= maxOutput {
		return to
	}
	to = append(to, text...)
	if len(to) > maxOutput {
		to = append(to[:maxOutput], "\n... the rest is in the log\n"...)
	}
	return to
}

// skipReason returns what a skipped test said: its output without the testing
// package's own lines and without the position in the source.
func skipReason(output []byte) string {
	var words []string
	for line := range bytes.Lines(output) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
			continue
		}
		if place, rest, ok := strings.Cut(text, ": "); ok && strings.Contains(place, ".go:") {
			text = rest
		}
		words = append(words, text)
	}
	return strings.Join(words, " ")
}
