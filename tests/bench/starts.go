package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// start is a way in which "ctr run --rm busybox true" gets its container.
type start struct {
	name    string
	runtime harness.Runtime
	// factory is the configuration's section of that name; empty has the guest
	// boot.
	factory string
	spares  int
	daemon  *harness.Daemon
	dir     string // for the template
	took    series
}

func fromTemplate() *start {
	return &start{name: "template", runtime: harness.Kata, factory: "enable_template = true\n"}
}

func fromPool() *start {
	return &start{name: "pool", runtime: harness.Kata, factory: "enable_template = true\nvm_cache_number = 1\n", spares: 1}
}

// benchStarts measures and prints how long starts take: with runc, and with guests
// that boot, come from a template, and were spares. In each round all take
// their turn.
func benchStarts(ctx context.Context, d *harness.Daemon, rounds int) (err error) {
	all := []*start{
		{name: "runc", runtime: harness.Runc, daemon: d},
		{name: "boot", runtime: harness.Kata, daemon: d},
		fromTemplate(), fromPool(),
	}
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.end(context.WithoutCancel(ctx)))
		}
	}()
	for _, s := range all {
		if err := s.begin(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for i := range rounds + 1 { // the first warms up
		fmt.Fprintf(os.Stderr, "bench: starts, round %d of %d\n", i, rounds)
		for _, s := range all {
			if err := s.round(ctx, i > 0); err != nil {
				return fmt.Errorf("%s: %w\n%s", s.name, err, s.daemon.LogTail(20))
			}
		}
	}
	printStarts(os.Stdout, all)
	fmt.Fprintf(os.Stdout, "\nmade by: go run ./tests/bench -starts -n %d -containerd %s\n", rounds, d.Release().Name)
	return nil
}

// begin starts a daemon like d with the start's own configuration.
func (s *start) begin(ctx context.Context, d *harness.Daemon) error {
	if s.daemon != nil {
		return nil
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	extra := fmt.Sprintf("%s[factory]\ntemplate_path = %q\n%s", shareConfig, filepath.Join(s.dir, "templates"), s.factory)
	s.daemon, err = harness.Start(ctx, harness.Options{
		Layout: d.Layout(), Release: d.Release(), Runtime: s.runtime, Kata: harness.KataConfig{Extra: extra},
	})
	if err != nil {
		return err
	}
	if out, err := s.daemon.Factory(ctx, "init"); err != nil {
		return fmt.Errorf("make the template: %w: %s", err, out)
	}
	return nil
}

// end removes what begin made.
func (s *start) end(ctx context.Context) error {
	if s.dir == "" {
		return nil
	}
	var errs []error
	if s.daemon != nil {
		if out, err := s.daemon.Factory(ctx, "destroy"); err != nil {
			errs = append(errs, fmt.Errorf("remove the template: %w: %s", err, out))
		}
		errs = append(errs, s.daemon.Stop(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// round measures one start. With a pool it waits for the next spare afterwards, so
// that making it slows down nothing that is measured.
func (s *start) round(ctx context.Context, counts bool) error {
	ms, err := timeCtrRun(ctx, s.daemon, s.runtime)
	if err != nil {
		return err
	}
	if counts {
		s.took = append(s.took, ms)
	}
	return s.awaitSpares(ctx)
}

// awaitSpares waits until the pool is full.
func (s *start) awaitSpares(ctx context.Context) error {
	for deadline := time.Now().Add(harness.MakerPatience); s.spares > 0; time.Sleep(100 * time.Millisecond) {
		out, err := s.daemon.Factory(ctx, "status", "--json")
		if err != nil {
			return fmt.Errorf("list spares: %w: %s", err, out)
		}
		var status struct{ Spares []struct{ State string } }
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return fmt.Errorf("list spares: %w: %s", err, out)
		}
		ready := 0
		for _, spare := range status.Spares {
			if spare.State == "ready" {
				ready++
			}
		}
		if ready >= s.spares {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d spares are ready: %s", ready, s.spares, out)
		}
	}
	return nil
}

// printStarts prints the times, and their ratios to the first's and the second's.
func printStarts(out io.Writer, all []*start) {
	fmt.Fprintf(out, "\nctr run --rm busybox true, %d rounds\n\n", len(all[0].took))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tmedian ms\tleast\t/ %s\t/ %s\t\n", all[0].name, all[1].name)
	for _, s := range all {
		m := s.took.median()
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f\t%.2f\t\n", s.name, m, s.took.percentile(0), m/all[0].took.median(), m/all[1].took.median())
	}
	_ = w.Flush()
}
