package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// margin is how much longer than its time a target may run: it covers the
// minimizing of a finding. A wedged target must not hold up the rest. It also bounds
// the replay of an input on a busy host.
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
	t := target{pkg: p, program: program, name: name, replayCPU: replayCPU}
	r.out.begin(p, name)
	did, err := runWhole(r.perTarget, func(rest time.Duration) (work, error) {
		did, err := r.run(ctx, t, rest)
		if err != nil && ctx.Err() == nil && t.starved(ctx, err) {
			err = fmt.Errorf("%w: %w", errStarved, err)
		}
		return did, err
	})
	r.out.end(p, name, time.Since(start), did, err)
	return err == nil
}

// target is a fuzz function and the program that has it.
type target struct {
	pkg           listed
	program, name string
	// replayCPU is the CPU time from which on an input is a finding.
	replayCPU time.Duration
}

// command returns a run of the program in the package's directory, where
// failing inputs are kept. Its temporary files are beside the program: workers
// that are killed leave theirs.
func (t target) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.program, args...)
	cmd.Dir = t.pkg.Dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(t.program))
	return cmd
}

// work is what a target has done.
type work struct {
	executions int64
	cpu        time.Duration
}

// run fuzzes a target for a time. The error contains what the program printed,
// with the file of the failing input.
func (r *runner) run(ctx context.Context, t target, length time.Duration) (work, error) {
	ctx, cancel := context.WithTimeout(ctx, length+margin)
	defer cancel()
	cmd := t.command(ctx, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+length.String(), "-test.timeout=0",
		"-test.fuzzminimizetime=5s", "-test.fuzzcachedir="+filepath.Join(r.dir, "cache", t.pkg.ImportPath))
	if r.atOnce > 1 {
		cmd.Args = append(cmd.Args, "-test.parallel=1")
	}
	out, err := cmd.CombinedOutput()
	did := workOf(string(out))
	if cmd.ProcessState != nil { // with the workers', which it has waited for
		did.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return did, fmt.Errorf("%s %s: %w\n%s", t.pkg.ImportPath, t.name, err, strings.TrimSpace(string(out)))
	}
	return did, nil
}

var executions = regexp.MustCompile(`execs: ([0-9]+)`)

// workOf reads what the testing package has printed.
func workOf(out string) (w work) {
	if all := executions.FindAllStringSubmatch(out, -1); len(all) > 0 {
		w.executions, _ = strconv.ParseInt(all[len(all)-1][1], 10, 64) // digits; too many of them give the largest number
	}
	return w
}
