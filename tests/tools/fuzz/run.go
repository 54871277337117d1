package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// margin is how much longer than its time a target may run: it covers the
// minimizing of a finding. A wedged target must not hold up the rest.
const margin = 3 * time.Minute

// fuzz builds the package's program in dir, runs its targets and reports
// whether nothing was found.
func (p listed) fuzz(ctx context.Context, d time.Duration, dir string, out *report) (ok bool) {
	began := time.Now()
	program := filepath.Join(dir, "fuzz.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-fuzz", ".", "-o", program, p.ImportPath)
	if text, err := build.CombinedOutput(); err != nil {
		out.broken(p, fmt.Errorf("build: %w\n%s", err, text))
		return false
	}
	ok = true
	for _, name := range p.targets {
		if ctx.Err() != nil {
			return false
		}
		start := time.Now()
		out.begin(p, name)
		err := runAgain(ctx, func() error { return p.run(ctx, program, dir, name, d) })
		out.end(p, name, time.Since(start), err)
		ok = ok && err == nil
	}
	out.done(p, time.Since(began), ok)
	return ok
}

// runAgain calls run, and calls it again if the program failed only because its
// time ended in the middle of a round. It then reports "context deadline
// exceeded" as if that were a finding, but writes no failing input. On a busy
// machine that happens often.
func runAgain(ctx context.Context, run func() error) (err error) {
	for range 3 {
		err = run()
		if err == nil || ctx.Err() != nil {
			return err
		}
		text := err.Error()
		if !strings.Contains(text, "context deadline exceeded") || strings.Contains(text, "Failing input") {
			return err
		}
	}
	return err
}

// run fuzzes one target in the package's directory, where a failing input is
// kept. The error contains what the program printed, with that input's file.
func (p listed) run(ctx context.Context, program, dir, name string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d+margin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+d.String(),
		"-test.fuzzminimizetime=5s", "-test.fuzzcachedir="+filepath.Join(dir, "cache", p.ImportPath))
	cmd.Dir = p.Dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", p.ImportPath, name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
