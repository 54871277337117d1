package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const verbose = `=== RUN   TestGood
--- PASS: TestGood (1.20s)
=== RUN   TestParts
=== RUN   TestParts/one
    parts_test.go:1: --- FAIL: TestGood (not a result)
=== RUN   TestParts/two
--- PASS: TestParts (0.00s)
    --- PASS: TestParts/one (0.00s)
    --- SKIP: TestParts/two (0.00s)
=== RUN   TestBad
--- FAIL: TestBad (0.00s)
=== RUN   TestAway
--- SKIP: TestAway (0.00s)
FAIL
`

// A listed test that failed, was skipped or is missing is reported.
func TestJudge(t *testing.T) {
	r := newReport(io.Discard)
	for part := range strings.SplitAfterSeq(verbose, "e") { // lines arrive in pieces
		if _, err := io.WriteString(r, part); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		tests []string
		code  int
		want  []string
	}{
		{[]string{"TestGood"}, 0, []string{"TestParts/two: SKIP", "TestAway: SKIP"}},
		{[]string{"TestBad", "TestAway"}, 1, []string{"TestBad: FAIL", "TestAway: SKIP", "TestParts/two: SKIP"}},
		{[]string{"TestGone"}, 0, []string{"TestGone did not run", "TestParts/two: SKIP", "TestAway: SKIP"}},
	} {
		faults, again := suite{tests: test.tests}.judge(r, test.code)
		if diff := cmp.Diff(test.want, faults); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.tests, diff)
		}
		if slices.Contains(again, "TestGood") || slices.Contains(again, "TestAway") || slices.Contains(test.tests, "TestBad") != slices.Contains(again, "TestBad") {
			t.Errorf("%v: second tries of %v", test.tests, again)
		}
	}
	if _, current := r.silence(); current != "TestAway" {
		t.Errorf("the test that runs is %q", current)
	}
}

// A suite fails if its program does, even if all tests passed.
func TestJudgeExitCode(t *testing.T) {
	r := newReport(io.Discard)
	if _, err := io.WriteString(r, "--- PASS: TestGood (1.20s)\n"); err != nil {
		t.Fatal(err)
	}
	s := suite{tests: []string{"TestGood"}}
	if faults, _ := s.judge(r, 0); len(faults) > 0 {
		t.Errorf("code 0: %v", faults)
	}
	if faults, again := s.judge(r, 1); len(faults) != 1 || len(again) > 0 {
		t.Errorf("code 1: %v, %v, want one fault and no second try", faults, again)
	}
}

func FuzzReport(f *testing.F) {
	f.Add(verbose)
	f.Add("    --- SKIP: \n=== RUN")
	f.Fuzz(func(t *testing.T, text string) {
		whole, pieces := newReport(io.Discard), newReport(io.Discard)
		_, _ = io.WriteString(whole, text) // never fails
		for _, b := range []byte(text) {
			_, _ = pieces.Write([]byte{b}) // nor this
		}
		if diff := cmp.Diff(whole.results, pieces.results); diff != "" {
			t.Errorf("whole and in pieces (-want +got):\n%s", diff)
		}
	})
}
