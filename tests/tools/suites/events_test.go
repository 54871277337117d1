package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded returns a run whose events are in testdata: what "go test -json" of
// Go 1.26 printed for a package made for it.
func recorded(t *testing.T, name string) outcome {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := outcome{tally: newTally(io.Discard), err: errors.New("exit status 1")}
	if err := o.tally.read(f); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFaults(t *testing.T) {
	tests := []struct {
		recorded string
		want     string // String of the only fault
		final    bool
		output   string // is part of it
	}{
		{"subtest", "s ev/sub TestS/a_b/c/x: failed", false, "a_test.go:3: broken"},
		{"panic", "s ev/pan: broke off", false, "assignment to entry in nil map"},
		{"timeout", "s ev/tmo: broke off in TestT", false, "test timed out after 3s"},
		{"leak", "s ev/main: failed outside of its tests", false, "left behind"},
		{"race", "s ev/race TestR: failed, and its package has a data race", true, "WARNING: DATA RACE"},
		{"build", "s ev/build: does not build", true, "undefined: x"},
	}
	for _, tt := range tests {
		t.Run(tt.recorded, func(t *testing.T) {
			found := faults(suite{name: "s", packages: []string{"./x"}}, recorded(t, tt.recorded))
			if len(found) != 1 {
				t.Fatalf("%d faults: %v, want one", len(found), found)
			}
			f := found[0]
			if f.String() != tt.want || f.final != tt.final {
				t.Errorf("fault %q, final %t; want %q, %t", f, f.final, tt.want, tt.final)
			}
			if !strings.Contains(string(f.output), tt.output) {
				t.Errorf("output lacks %q:\n%s", tt.output, f.output)
			}
		})
	}
}

func TestOutputOfPassedTestsIsNotKept(t *testing.T) {
	for _, p := range recorded(t, "panic").tally.packages {
		for _, r := range p.tests {
			if kept := len(r.output) > 0; kept == (r.outcome == pass) {
				t.Errorf("%s: %s, output %q", r.name, r.outcome, r.output)
			}
		}
	}
}

// A command that ends with an error and no failed test, as "go test" does
// without a network, is a fault with what it said.
func TestCommandFaults(t *testing.T) {
	o := outcome{tally: newTally(io.Discard), stderr: []byte("dial tcp: no route\n"), err: errors.New("exit status 1")}
	found := faults(suite{name: "make", command: []string{"make"}, once: true}, o)
	if len(found) != 1 || found[0].String() != "make: exit status 1" || !found[0].final || !strings.Contains(string(found[0].output), "no route") {
		t.Errorf("faults %v", found)
	}
	o.err = nil
	if found := faults(suite{name: "make"}, o); len(found) > 0 {
		t.Errorf("a command that passed has faults %v", found)
	}
}

func TestListedTestThatIsNotThere(t *testing.T) {
	o := recorded(t, "leak")
	o.err = nil
	o.tally.packages[0].outcome = pass
	found := faults(suite{name: "s", tests: []string{"TestOK", "TestGone"}}, o)
	if len(found) != 1 || found[0].test != "TestGone" || !found[0].final {
		t.Errorf("faults %v, want TestGone's", found)
	}
}

func TestLinesThatAreNoEvents(t *testing.T) {
	tally := newTally(io.Discard)
	text := "go: downloading x\n{\"broken\n{}\n{\"Action\":\"run\",\"Package\":\"p\",\"Test\":\"T\"}\nno newline"
	if err := tally.read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if want := "go: downloading x\n{\"broken\n{}\nno newline"; string(tally.noise) != want {
		t.Errorf("noise %q, want %q", tally.noise, want)
	}
	if diff := cmp.Diff([]string{"T"}, tally.byName["p"].unfinished()); diff != "" {
		t.Errorf("unfinished (-want +got):\n%s", diff)
	}
}

func TestOutputIsBounded(t *testing.T) {
	var b []byte
	for range 3 {
		b = grow(b, strings.Repeat("x", maxOutput-1))
	}
	if len(b) > maxOutput+100 || !strings.HasSuffix(string(b), "the rest is in the log\n") {
		t.Errorf("%d bytes, end %q", len(b), b[len(b)-40:])
	}
}

func TestSkipReason(t *testing.T) {
	for output, want := range map[string]string{
		"=== RUN   TestX\n    a_test.go:3: no such thing: really\n--- SKIP: TestX (0.00s)\n": "no such thing: really",
		"=== RUN   TestX\n--- SKIP: TestX (0.00s)\n":                                         "",
	} {
		if got := skipReason([]byte(output)); got != want {
			t.Errorf("%q: reason %q, want %q", output, got, want)
		}
	}
}

func TestRunPattern(t *testing.T) {
	if got, want := runPattern("TestA/x.y/(b)"), `^TestA$/^x\.y$/^\(b\)$`; got != want {
		t.Errorf("pattern %s, want %s", got, want)
	}
}
