package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A worker that ended on one input is a finding if the input ends it again.
func TestStarved(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module tiny\n\ngo 1.26\n",
		"a_test.go": `package tiny
import ("syscall"; "testing")
func FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {
	if len(b) > 2 { panic("too long") }
	for r := (syscall.Rusage{}); len(b) == 2 && r.Utime.Sec+r.Stime.Sec < 2; { syscall.Getrusage(syscall.RUSAGE_SELF, &r) }
}) }
`,
		"testdata/fuzz/FuzzA/short": "go test fuzz v1\n[]byte(\"a\")\n",
		"testdata/fuzz/FuzzA/slow":  "go test fuzz v1\n[]byte(\"aa\")\n",
		"testdata/fuzz/FuzzA/long":  "go test fuzz v1\n[]byte(\"aaa\")\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "tiny.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	fuzzA := target{pkg: listed{Dir: dir}, program: program, name: "FuzzA", replayCPU: time.Second}
	const (
		seed = "failure while testing seed corpus entry: FuzzA/"
		late = "\n--- FAIL: FuzzA (66.33s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\n"
	)
	const hung = "fuzzing process hung or terminated unexpectedly: exit status 2\nFailing input written to testdata/fuzz/FuzzA/"
	for _, tc := range []struct {
		err  string
		want bool
	}{
		{"--- FAIL: FuzzA (5.00s)\n    context deadline exceeded", true},
		{"--- FAIL: FuzzA (52.66s)\n    communicating with fuzzing process: EOF", true},
		{"context deadline exceeded\nFailing input written to testdata/fuzz/FuzzA/short", false},
		{hung + "long", false},
		{hung + "slow", false},
		{seed + "short" + late, true},
		{seed + "slow" + late, false},
		{seed + "long" + late, false},
		{seed + "short\n--- FAIL: FuzzA (0.01s)\n    a_test.go:3: wrong", false},
		{hung + "short", true},
		{"panic: FuzzA", false},
	} {
		if got := fuzzA.starved(t.Context(), errors.New(tc.err)); got != tc.want {
			t.Errorf("%q: starved %v, want %v", tc.err, got, tc.want)
		}
	}
	for name, kept := range map[string]bool{"short": false, "slow": true, "long": true} {
		if _, err := os.Stat(filepath.Join(dir, "testdata/fuzz/FuzzA", name)); (err == nil) != kept {
			t.Errorf("input %s: %v, want it kept: %v", name, err, kept)
		}
	}
}

// A target that is starved runs on for the rest of its time. One with a finding
// ends.
func TestRunWhole(t *testing.T) {
	finding := errors.New("finding")
	for _, tc := range []struct {
		name       string
		errs       []error
		want       error
		executions int64
	}{
		{"nothing found", []error{nil}, nil, 1},
		{"starved once", []error{errStarved, nil}, nil, 2},
		{"finding", []error{finding, nil}, finding, 1},
		{"starved, then a finding", []error{errStarved, finding}, finding, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left, last := tc.errs, time.Minute+1
			did, err := runWhole(time.Minute, func(rest time.Duration) (work, error) {
				if rest >= last || rest < 50*time.Second {
					t.Errorf("a run of %v after one of %v", rest, last)
				}
				err := left[0]
				last, left = rest, left[1:]
				if err != nil {
					err = fmt.Errorf("run: %w", err)
				}
				return work{executions: 1}, err
			})
			if !errors.Is(err, tc.want) || did.executions != tc.executions {
				t.Errorf("%d executions, %v; want %d, %v", did.executions, err, tc.executions, tc.want)
			}
		})
	}
	runs := 0
	did, err := runWhole(50*time.Millisecond, func(time.Duration) (work, error) {
		if runs++; runs == 1 {
			return work{}, errStarved
		}
		time.Sleep(50 * time.Millisecond)
		return work{executions: 1}, errStarved
	})
	if err != nil || did.executions != 1 || runs != 2 {
		t.Errorf("starved until its end: %d runs, %d executions, %v", runs, did.executions, err)
	}
	runs = 0
	_, err = runWhole(time.Hour, func(time.Duration) (work, error) {
		if runs++; runs > 2*tries {
			return work{}, nil
		}
		return work{}, errStarved
	})
	if err != nil || runs != 2*tries+1 {
		t.Errorf("starved often in an hour: %d runs, %v", runs, err)
	}
	runs = 0
	_, err = runWhole(time.Nanosecond, func(time.Duration) (work, error) { runs++; return work{}, errStarved })
	if !errors.Is(err, errStarved) || runs != tries {
		t.Errorf("always starved: %d runs, %v", runs, err)
	}
}
