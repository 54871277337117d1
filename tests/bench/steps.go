package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// stepsOf measures and prints the spans of a way's starts.
func stepsOf(way func() *start) part {
	return func(ctx context.Context, d *harness.Daemon, rounds int) error {
		return way().benchSteps(ctx, d, rounds)
	}
}

// benchSteps measures and prints the spans of starts.
func (s *start) benchSteps(ctx context.Context, d *harness.Daemon, rounds int) (err error) {
	defer func() { err = errors.Join(err, s.end(context.WithoutCancel(ctx))) }()
	if err := s.begin(ctx, d); err != nil {
		return err
	}
	if err := s.round(ctx, false); err != nil { // the first has the template's memory copied
		return err
	}
	var lines []*timeline.Timeline
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "bench: start %d of %d\n", i+1, rounds)
		line, err := oneTimeline(ctx, s.daemon)
		if err != nil {
			return err
		}
		lines = append(lines, line)
		if err := s.awaitSpares(ctx); err != nil {
			return err
		}
	}
	printSpans(os.Stdout, lines)
	return nil
}

// printSpans prints where the spans of the last timeline begin, and how long they
// take, in the median of all, and the least.
func printSpans(out io.Writer, lines []*timeline.Timeline) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "side\tspan\tbegins\tmedian ms\tleast\t\n")
	last := lines[len(lines)-1]
	for _, span := range last.Spans {
		var begins, took series
		for _, line := range lines {
			container := strings.ReplaceAll(span.Container, last.Sandbox, line.Sandbox)
			if found, ok := line.Find(span.Side, container, span.Name); ok {
				begins = append(begins, milliseconds(found.Start))
				took = append(took, milliseconds(found.End-found.Start))
			}
		}
		if len(took) == 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.1f\t%.1f\t\n", span.Side, span.Name, begins.median(), took.median(), took.percentile(0))
	}
	_ = w.Flush()
}
