package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// margin is how much longer than its time a target may run: it covers the
// minimizing of a finding. A wedged target must not hold up the rest.
const margin = 3 * time.Minute

// runner runs targets.
type runner struct {
	options
	// dir is for programs and inputs.
	dir string
	out *report
	// slots has room for the programs that may run concurrently.
	slots chan struct{}
}

// start builds the package's program and starts its targets, each as soon as
// there is room for it. The function that it returns waits for their end, and
// reports whether nothing was found.
func (r *runner) start(ctx context.Context, p listed, number int) (wait func() bool) {
	began := time.Now()
	program := filepath.Join(r.dir, fmt.Sprintf("fuzz%d.test", number))
	r.slots <- struct{}{}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-fuzz", ".", "-o", program, p.ImportPath)
	text, err := build.CombinedOutput()
	<-r.slots
	if err != nil {
		r.out.broken(p, fmt.Errorf("build: %w\n%s", err, text))
		return func() bool { return false }
	}
	var running sync.WaitGroup
	var failed atomic.Bool
	for _, name := range p.targets {
		r.slots <- struct{}{}
		running.Go(func() {
			defer func() { <-r.slots }()
			if ctx.Err() != nil || !r.fuzz(ctx, p, program, name) {
				failed.Store(true)
			}
		})
	}
	return func() bool {
		running.Wait()
		r.out.done(p, time.Since(began), !failed.Load())
		return !failed.Load()
	}
}

// fuzz runs one target and reports whether nothing was found.
func (r *runner) fuzz(ctx context.Context, p listed, program, name string) bool {
	start := time.Now()
	r.out.begin(p, name)
	var did work
	err := runAgain(ctx, func() (err error) {
		did, err = r.run(ctx, p, program, name)
		return err
	})
	r.out.end(p, name, time.Since(start), did, err)
	return err == nil
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

// work is what a target has done.
type work struct {
	executions string
	cpu        time.Duration
}

// run fuzzes one target in the package's directory, where a failing input is
// kept. The error contains what the program printed, with that input's file.
func (r *runner) run(ctx context.Context, p listed, program, name string) (work, error) {
	ctx, cancel := context.WithTimeout(ctx, r.perTarget+margin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.fuzz=^"+name+"$", "-test.fuzztime="+r.perTarget.String(), "-test.timeout=0",
		"-test.fuzzminimizetime=5s", "-test.fuzzcachedir="+filepath.Join(r.dir, "cache", p.ImportPath))
	if r.atOnce > 1 {
		cmd.Args = append(cmd.Args, "-test.parallel=1")
	}
	cmd.Dir = p.Dir
	out, err := cmd.CombinedOutput()
	did := workOf(string(out))
	if cmd.ProcessState != nil { // with the workers', which it has waited for
		did.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return did, fmt.Errorf("%s %s: %w\n%s", p.ImportPath, name, err, strings.TrimSpace(string(out)))
	}
	return did, nil
}

var executions = regexp.MustCompile(`execs: ([0-9]+)`)

// workOf reads what the testing package has printed.
func workOf(out string) work {
	all := executions.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return work{executions: "0"}
	}
	return work{executions: all[len(all)-1][1]}
}
