package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

// timelineText is how the median start is drawn.
var timelineText = timeline.TextOptions{Width: 120}

// benchTimeline measures and draws cold starts alone.
func benchTimeline(ctx context.Context, d *harness.Daemon, rounds int) error {
	if _, err := timeCtrRun(ctx, d, harness.Kata); err != nil { // reads the files from disk
		return err
	}
	t, err := medianTimeline(ctx, d, rounds)
	if err != nil {
		return err
	}
	return t.WriteText(os.Stdout, timelineText)
}

// medianTimeline starts that many pods, one after the other, and returns the
// timeline of the one whose first output came in the middle.
func medianTimeline(ctx context.Context, d *harness.Daemon, rounds int) (*timeline.Timeline, error) {
	type start struct {
		line *timeline.Timeline
		took time.Duration
	}
	var starts []start
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "bench: timeline %d of %d\n", i+1, rounds)
		line, err := oneTimeline(ctx, d)
		if err != nil {
			return nil, err
		}
		output, ok := line.Find(timeline.Host, line.Sandbox, "first output")
		if !ok {
			return nil, fmt.Errorf("the timeline of %s has no output", line.Sandbox)
		}
		starts = append(starts, start{line, output.Start})
	}
	slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.took, b.took) })
	return starts[len(starts)/2].line, nil
}

// oneTimeline runs a pod until its first output, and reads its timeline.
func oneTimeline(ctx context.Context, d *harness.Daemon) (_ *timeline.Timeline, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "timeline", Args: []string{"sh", "-c", "echo up; sleep 100000"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx))) }()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	if err := c.Out.Await(ctx, "up"); err != nil {
		return nil, err
	}
	program := filepath.Join(d.Layout().Bin(), "kata-runtime")
	out, err := exec.CommandContext(ctx, program, "timeline", "--json", c.Box.ID()).Output()
	if err != nil {
		return nil, fmt.Errorf("kata-runtime timeline: %w", err)
	}
	return timeline.Parse(out)
}
