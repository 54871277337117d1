package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// errStarved is a failure that is the busy host's, not the target's.
var errStarved = errors.New("the host was too busy")

// tries is how often a target is run at least before it is reported that it was
// starved.
const tries = 10

// An input is no finding if it passes this often, each time with so little CPU
// time: one that takes longer is.
const (
	replays   = 3
	replayCPU = 5 * time.Second
)

// runWhole calls run until it has run for a time altogether: again for what is
// left if it is starved. It adds up what was done. A target whose time is over
// has passed, however little CPU time it had, if it has executed anything.
func runWhole(whole time.Duration, run func(rest time.Duration) (work, error)) (all work, err error) {
	began := time.Now()
	for n := 0; n < tries || time.Since(began) < whole; n++ {
		rest := max(whole-time.Since(began), min(whole, time.Second))
		var did work
		did, err = run(rest)
		all.executions += did.executions
		all.cpu += did.cpu
		over := all.executions > 0 && time.Since(began) >= whole
		if err == nil || over && errors.Is(err, errStarved) {
			return all, nil
		}
		if !errors.Is(err, errStarved) {
			return all, err
		}
	}
	return all, err
}

// starved reports whether a run failed only for want of CPU time. The testing
// package has limits that are too short for a busy host:
//   - A worker that does not stop within a second of the end of the run's time
//     is reported as "context deadline exceeded", without an input.
//   - A worker that does not answer a first call in time is reported as
//     "communicating with fuzzing process", without an input.
//   - An execution of 10 s ends the worker: "fuzzing process hung or terminated
//     unexpectedly", with an input, a new one or one of the corpus. Whether the
//     input did it, replays tell. If not, a new one is printed and its file is
//     removed.
func (t target) starved(ctx context.Context, err error) bool {
	hung := strings.Contains(err.Error(), "hung or terminated unexpectedly")
	if seed := failingSeed.FindStringSubmatch(err.Error()); seed != nil {
		return hung && t.passes(ctx, seed[1])
	}
	input := failingInput.FindStringSubmatch(err.Error())
	if input == nil {
		return strings.Contains(err.Error(), "context deadline exceeded") || strings.Contains(err.Error(), "communicating with fuzzing process")
	}
	if !hung || !t.passes(ctx, filepath.Base(input[1])) {
		return false
	}
	file := filepath.Join(t.pkg.Dir, input[1])
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	fmt.Fprintf(os.Stderr, "fuzz: %s: the worker had no CPU time for an input that passes: %.1000q\n", t.name, text)
	return os.Remove(file) == nil
}

var (
	failingInput = regexp.MustCompile(`Failing input written to (\S+)`)
	failingSeed  = regexp.MustCompile(`failure while testing seed corpus entry: [^/\s]+/(\S+)`)
)

// passes runs the target with an input of its corpus alone, and reports whether
// it passes each time, with little CPU time.
func (t target) passes(ctx context.Context, input string) bool {
	for range replays {
		ctx, cancel := context.WithTimeout(ctx, margin)
		cmd := t.command(ctx, "-test.run=^"+t.name+"$/^"+regexp.QuoteMeta(input)+"$", "-test.timeout="+margin.String())
		err := cmd.Run()
		cancel()
		if err != nil || cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime() > t.replayCPU {
			return false
		}
	}
	return true
}
