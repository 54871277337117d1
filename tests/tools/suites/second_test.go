package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// module makes a module with one package for each file and returns a runner
// for it. Its tests find the module's root two directories up.
func module(t *testing.T, files map[string]string) *runner {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module tiny\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &runner{root: dir, results: t.TempDir(), screen: newScreen(&bytes.Buffer{}, false)}
}

// once returns a test file. In its body, "first" is true only in the first run
// of the test program.
func once(pkg, body string) string {
	return fmt.Sprintf(`package %s

import (
	"os"
	"testing"
)

var first = func() bool {
	_, err := os.Stat("seen")
	_ = os.WriteFile("seen", nil, 0o644)
	return err != nil
}()

%s
`, pkg, body)
}

// play runs the suites, the second tries and the summary.
func play(t *testing.T, r *runner, suites ...suite) (ok bool, summary string, reports []*report) {
	t.Helper()
	for i := range suites {
		suites[i].timeout = 2 * time.Minute
	}
	reports = r.runAll(t.Context(), suites, 2)
	r.secondTries(t.Context(), reports)
	var b bytes.Buffer
	ok = summarize(&b, reports)
	return ok, b.String(), reports
}

// lastLine returns the last line of a summary; nothing may follow it.
func lastLine(summary string) string {
	lines := strings.Split(summary, "\n")
	return strings.Join(lines[len(lines)-2:], "|")
}

func TestPassesOnTheSecondTry(t *testing.T) {
	r := module(t, map[string]string{"a/a_test.go": once("a", `
func TestGood(t *testing.T) {}
func TestNow(t *testing.T) {
	t.Run("and then", func(t *testing.T) {
		if first {
			t.Fatal("first words")
		}
	})
	t.Run("never", func(t *testing.T) { t.Skip("no moon") })
}`)})
	ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a"}})
	if !ok || lastLine(summary) != "3 passed, 0 failed, 1 skipped|" {
		t.Errorf("%t:\n%s", ok, summary)
	}
	for _, want := range []string{"PASSED ON THE SECOND TRY: s tiny/a TestNow/and_then", "first words", "SKIP s TestNow/never: no moon"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
	}
	kept, err := os.ReadFile(filepath.Join(r.results, "second-try-1-first-output.txt"))
	if err != nil || !strings.Contains(string(kept), "first words") {
		t.Errorf("kept %q, %v", kept, err)
	}
	again, err := os.ReadFile(filepath.Join(r.results, "second-try-1.log"))
	if err != nil || strings.Contains(string(again), "TestGood") || strings.Contains(string(again), "never") {
		t.Errorf("the second try ran more than the test: %q, %v", again, err)
	}
}

// A test that judges its cases together fails if only one of them is run: the second
// try then runs them all, and it must pass.
func TestCasesAreRunTogether(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		r := module(t, map[string]string{"a/a_test.go": once("a", fmt.Sprintf(`
func TestSum(t *testing.T) {
	sum := 0
	t.Run("one", func(t *testing.T) { sum++ })
	t.Run("two", func(t *testing.T) {
		if sum += 2; first {
			t.Error("bad luck")
		}
	})
	if sum != 3 || %t {
		t.Error("the sum is", sum)
	}
}`, keeps))})
		ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a"}})
		want := "PASSED ON THE SECOND TRY: s tiny/a TestSum/two"
		if keeps {
			want = "FAIL s tiny/a TestSum/two: failed, twice"
		}
		if ok == keeps || !strings.Contains(summary, want) {
			t.Errorf("the test keeps failing: %t, and the run passed: %t:\n%s", keeps, ok, summary)
		}
	}
}

func TestFailsTwice(t *testing.T) {
	r := module(t, map[string]string{"a/a_test.go": once("a", `
func TestBad(t *testing.T) { t.Error("words") }
func TestGood(t *testing.T) {}`)})
	ok, summary, reports := play(t, r, suite{name: "s", packages: []string{"./a"}})
	if ok || lastLine(summary) != "1 passed, 1 failed, 0 skipped|" || !strings.Contains(summary, "FAIL s tiny/a TestBad: failed, twice") {
		t.Errorf("%t:\n%s", ok, summary)
	}
	if n := strings.Count(string(reports[0].faults[0].output), "words"); n != 2 {
		t.Errorf("both tries are shown %d times:\n%s", n, reports[0].faults[0].output)
	}
}

// A failure says how to run it again by hand, with what the suite sets.
func TestShellLine(t *testing.T) {
	s := suite{name: "s", packages: []string{"./a", "./b"}, env: []string{"HOW=warm"}, flags: []string{"-short"}, timeout: time.Minute}
	f := fault{suite: s, pkg: "tiny/a", test: "TestBad/what's_wrong"}
	if got, want := f.shellLine(), `HOW=warm go test -count=1 -vet=off -timeout 1m0s -short -run '^TestBad$/^what'\''s_wrong$' tiny/a`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f = fault{suite: suite{name: "c", command: []string{"make", "critools"}}}
	if got := f.shellLine(); got != "make critools" {
		t.Errorf("a command: %s", got)
	}
}

// A package that breaks off, or fails outside of its tests, is run again as a
// whole: the tests after the break count too.
func TestPackageIsRunAgain(t *testing.T) {
	r := module(t, map[string]string{
		"a/a_test.go": once("a", `
func TestOne(t *testing.T) { if first { panic("at the disco") } }
func TestTwo(t *testing.T) {}`),
		"b/b_test.go": once("b", `
func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 || first {
		os.Exit(1)
	}
}
func TestOne(t *testing.T) {}`),
	})
	ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a", "./b"}})
	if !ok || lastLine(summary) != "3 passed, 0 failed, 0 skipped|" {
		t.Errorf("%t:\n%s", ok, summary)
	}
	for _, want := range []string{"SECOND TRY: s tiny/a\n", "SECOND TRY: s tiny/b\n"} {
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
	}
}

func TestManyFailuresGetNoSecondTry(t *testing.T) {
	var body strings.Builder
	for i := range maxSecondTries + 1 {
		fmt.Fprintf(&body, "func Test%d(t *testing.T) { if first { t.Fail() } }\n", i)
	}
	r := module(t, map[string]string{"a/a_test.go": once("a", body.String())})
	ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a"}})
	if ok || lastLine(summary) != fmt.Sprintf("0 passed, %d failed, 0 skipped|", maxSecondTries+1) {
		t.Errorf("%t:\n%s", ok, summary)
	}
}

func TestNoSecondTryForARace(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the race detector's library")
	}
	r := module(t, map[string]string{"a/a_test.go": once("a", `
func TestRace(t *testing.T) {
	if !first {
		return
	}
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
}`)})
	ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a"}, flags: []string{"-race"}})
	if ok || lastLine(summary) != "0 passed, 1 failed, 0 skipped|" {
		t.Errorf("%t:\n%s", ok, summary)
	}
}

func TestSkippedOnTheSecondTryHasNotPassed(t *testing.T) {
	r := module(t, map[string]string{"a/a_test.go": once("a", `
func TestA(t *testing.T) { if first { t.Fatal("x") }; t.Skip("y") }`)})
	if ok, summary, _ := play(t, r, suite{name: "s", packages: []string{"./a"}}); ok {
		t.Errorf("it passed:\n%s", summary)
	}
}

func TestMissingOnTheSecondTryHasNotPassed(t *testing.T) {
	r := module(t, map[string]string{"a/a_test.go": once("a", `
func TestA(t *testing.T) { if first { t.Run("drawn", func(t *testing.T) { t.Fatal("x") }) } }`)})
	ok, _, reports := play(t, r, suite{name: "s", packages: []string{"./a"}})
	if output := string(reports[0].faults[0].output); ok || !strings.Contains(output, "the second try did not run it") {
		t.Errorf("%t:\n%s", ok, output)
	}
}

func TestBuildsAreTriedAgainAtOnce(t *testing.T) {
	r := module(t, map[string]string{})
	flaky := []string{"sh", "-c", "[ -e seen ] || { echo no network >&2; touch seen; exit 3; }"}
	ok, summary, _ := play(t, r,
		suite{name: "build", command: flaky, atOnce: true},
		suite{name: "use", command: []string{"true"}, needs: []string{"build"}})
	if !ok || lastLine(summary) != "2 passed, 0 failed, 0 skipped|" || !strings.Contains(summary, "no network") {
		t.Errorf("%t:\n%s", ok, summary)
	}
}

func TestWhatNeedsAFailedSuiteDoesNotRun(t *testing.T) {
	r := module(t, map[string]string{})
	ok, summary, reports := play(t, r,
		suite{name: "build", command: []string{"false"}, atOnce: true},
		suite{name: "test", command: []string{"true"}, needs: []string{"build"}},
		suite{name: "more", command: []string{"true"}, needs: []string{"test"}})
	if ok || lastLine(summary) != "0 passed, 3 failed, 0 skipped|" {
		t.Errorf("%t:\n%s", ok, summary)
	}
	var why []string
	for _, rep := range reports {
		why = append(why, rep.notRun)
	}
	if diff := cmp.Diff([]string{"", "build did not pass", "test did not pass"}, why); diff != "" {
		t.Errorf("not run (-want +got):\n%s", diff)
	}
}

// The run's deadline ends the running commands with their children, and is not
// a reason for a second try.
func TestDeadline(t *testing.T) {
	r := module(t, map[string]string{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	pidFile := filepath.Join(t.TempDir(), "pid")
	hang := suite{name: "hang", command: []string{"sh", "-c", "sleep 1000 & echo $! >" + pidFile + "; wait"}, timeout: time.Hour}
	late := suite{name: "late", command: []string{"true"}, needs: []string{"hang"}, timeout: time.Hour}
	reports := r.runAll(ctx, []suite{hang, late}, 1)
	r.secondTries(ctx, reports)
	if len(reports[0].faults) != 1 || !reports[0].faults[0].final || reports[1].notRun == "" {
		t.Errorf("faults %v, second suite %q", reports[0].faults, reports[1].notRun)
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the command's child still runs")
}
