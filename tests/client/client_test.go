package client

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// suiteTimeout bounds one run of the suite.
const suiteTimeout = 20 * time.Minute

// EnvTests names the tests of the suite to run, as a pattern, including those
// that are skipped by default.
const EnvTests = "KATABOX_TEST_CLIENT"

// short are the tests of -short: each way to begin, to end and to query, once,
// and what is hard with a machine.
var short = []string{
	"TestTaskUpdate", "TestContainerPids", "TestDaemonRestartWithRunningShim", "TestDaemonReconnectsToShimIOPipesOnRestart",
	"TestContainerHook", "TestWaitStoppedTask", "TestTaskForceDelete", "TestContainerKillAll",
}

// secondTries is how many tests may be tried again: more failures are not
// coincidental.
const secondTries = 5

// What passes with runc passes with Katabox.
func TestClientSuite(t *testing.T) {
	tests, skip := chosen()
	runc := runSuite(t, harness.Runc, tests, skip, "client-runc")
	if !bed.runtime.VM {
		return
	}
	kata := runSuite(t, harness.Kata, tests, skip, "client-kata")
	found := complaints(runc, kata, known)
	if again := topLevel(found); len(again) > 0 && len(again) <= secondTries {
		t.Logf("run once more, since the first time:\n%s", describe(found, kata))
		maps.Copy(kata, runSuite(t, harness.Kata, pattern(again), "", "client-kata-again"))
		found = complaints(runc, kata, known)
	}
	if len(found) > 0 {
		t.Errorf("not as with runc:\n%s", describe(found, kata))
	}
}

// chosen returns the patterns of the tests to run, and of those to skip.
func chosen() (tests, skip string) {
	if asked := os.Getenv(EnvTests); asked != "" {
		return asked, ""
	}
	if testing.Short() {
		tests = pattern(short)
	}
	var names []string
	for _, l := range left {
		names = append(names, l.name)
	}
	return tests, pattern(names)
}

func pattern(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// runSuite runs the suite with a runtime; what pods leave fails the test.
func runSuite(t *testing.T, r harness.Runtime, tests, skip, log string) results {
	t.Helper()
	start := time.Now()
	found, err := bed.suite.run(context.WithoutCancel(t.Context()), r, tests, skip, log)
	if err != nil {
		t.Error(err)
	}
	fmt.Printf("client suite with %s: %d passed, %d failed, %d skipped in %s\n", r.Name,
		found.count(passed), found.count(failed), found.count(skipped), time.Since(start).Round(time.Second))
	if left := awaitNone(podFiles); len(left) > 0 {
		t.Errorf("after the suite with %s is left: %v", r.Name, left)
	}
	return found
}

// complaints returns the tests with unexpected results, with what is wrong.
func complaints(runc, kata results, known []exception) map[string]string {
	found := map[string]string{}
	for name, o := range runc {
		state := kata[name].state
		listed := slices.ContainsFunc(known, func(e exception) bool { return e.name == name })
		switch {
		case o.state != passed:
		case state == passed && listed:
			found[name] = "is in the list of those that fail, and passes"
		case state == "" && !listed:
			found[name] = "passes with runc, and did not run with kata"
		case state != passed && !listed:
			found[name] = "passes with runc; with kata: " + state
		}
	}
	return found
}

// topLevel returns the top-level tests that failed, or whose subtests did.
func topLevel(found map[string]string) []string {
	var names []string
	for name := range found {
		name, _, _ = strings.Cut(name, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func describe(found map[string]string, kata results) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&b, "%s %s\n%s\n", name, found[name], kata[name].shown())
	}
	return b.String()
}

// The comparison must find new differences, fixed ones and vanished ones.
func TestOutputsCompare(t *testing.T) {
	const output = `=== RUN   TestA
    a_test.go:1: fine
--- PASS: TestA (0.00s)
=== RUN   TestB
=== RUN   TestB/one
    b_test.go:2: no
    --- FAIL: TestB/one (0.01s)
--- FAIL: TestB (0.01s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
=== RUN   TestD
FAIL
`
	got, ended := parse(strings.NewReader(output))
	want := results{
		"TestA": {passed, "    a_test.go:1: fine\n"}, "TestB": {failed, ""}, "TestB/one": {failed, "    b_test.go:2: no\n"},
		"TestC": {skipped, ""}, "TestD": {failed, ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" || !ended {
		t.Errorf("ended %v: %s", ended, diff)
	}
	if _, ended := parse(strings.NewReader("=== RUN   TestA\npanic: no\n")); ended {
		t.Error("a run that broke off came to its end")
	}
	runc := results{"TestA": {state: passed}, "TestB": {state: passed}, "TestB/one": {state: passed}, "TestC": {state: skipped}, "TestE": {state: passed}}
	found := complaints(runc, got, []exception{{"TestA", ""}, {"TestB", ""}})
	if diff := cmp.Diff([]string{"TestA", "TestB/one", "TestE"}, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"TestA", "TestB", "TestE"}, topLevel(found)); diff != "" {
		t.Error(diff)
	}
}
