// Command fuzz runs every fuzz target of the module, one after the other, each for a
// short time. A target is any "func FuzzX(f *testing.F)" of a test file; there
// is no list to forget one on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

func main() {
	perTarget := flag.Duration("time", 5*time.Second, "how long each target runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fuzzAll(ctx, *perTarget); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters now
	}
}

func fuzzAll(ctx context.Context, perTarget time.Duration) error {
	targets, err := findTargets(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for i, t := range targets {
		start := time.Now()
		err := t.runAgain(ctx, perTarget)
		verdict := "ok"
		if err != nil {
			verdict = "FAILED"
			failed = append(failed, err)
		}
		fmt.Printf("fuzz [%d/%d] %s %s: %s (%.1fs)\n", i+1, len(targets), t.pkg, t.name, verdict, time.Since(start).Seconds())
	}
	return errors.Join(failed...)
}

// runAgain runs the target, and again when the go command failed only because
// its time ended in the middle of a round: it then reports "context deadline
// exceeded" as if that were a finding, but writes no failing input. A busy
// machine sees that often.
func (t target) runAgain(ctx context.Context, d time.Duration) (err error) {
	for range 3 {
		err = t.run(ctx, d)
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

// run fuzzes one target. What the go command printed is in the error: the
// failing input's file among it.
func (t target) run(ctx context.Context, d time.Duration) error {
	// A wedged target must not hold up the rest: its build and the minimising
	// of a finding are within this time.
	ctx, cancel := context.WithTimeout(ctx, d+3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$",
		"-fuzztime", d.String(), "-fuzzminimizetime", "5s", t.pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", t.pkg, t.name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
