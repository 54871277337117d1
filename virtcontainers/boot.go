package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/log"

	"github.com/katabox/katabox/internal/spans"
)

// undoTimeout bounds each step's undo: a step that cannot be undone in that
// time is reported, and the others are still tried.
const undoTimeout = 10 * time.Second

// step is one named part of a boot.
type step struct {
	name string
	do   func(context.Context) error
	// undo takes back what do made, or nil. It is called only after do
	// succeeded: a do that fails cleans up after itself.
	undo func(context.Context) error
}

// boot is what remains of a list of steps that was run: what it took, and how
// to take it back.
type boot struct {
	done   []step
	times  map[string]time.Duration
	failAt string
	// failed is the step that failed, if one has.
	failed string
	// recorder remembers the steps' spans, as the container's or, empty, the pod's.
	recorder  *spans.Recorder
	container string
}

// run runs the steps in order. At the first failure it undoes what was done,
// in reverse order, and the error names the step.
func (b *boot) run(ctx context.Context, steps []step) error {
	b.times = make(map[string]time.Duration, len(steps))
	for _, s := range steps {
		if err := b.runOne(ctx, s); err != nil {
			b.failed = s.name
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), b.unwind(ctx))
		}
	}
	return nil
}

func (b *boot) runOne(ctx context.Context, s step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	start := time.Now()
	if err := s.do(ctx); err != nil {
		return err
	}
	end := time.Now()
	b.done = append(b.done, s)
	b.times[s.name] = end.Sub(start)
	b.recorder.Add(b.container, s.name, start, end)
	if b.failAt == s.name {
		return fmt.Errorf("failpoint %s is set", s.name)
	}
	return nil
}

// unwind undoes all that was done. It is not stopped by ctx's end: each undo
// has its own time. A second call does nothing.
func (b *boot) unwind(ctx context.Context) error {
	var errs []error
	for _, s := range slices.Backward(b.done) {
		if s.undo == nil {
			continue
		}
		undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		if err := s.undo(undoCtx); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", s.name, err))
		}
		cancel()
	}
	b.done = nil
	return errors.Join(errs...)
}

// fields are the pod's one log line of durations, in milliseconds, so that a
// slow start explains itself.
func (b *boot) fields() log.Fields {
	fields := make(log.Fields, len(b.times)+1)
	var total time.Duration
	for name, d := range b.times {
		fields["t_"+name] = milliseconds(d)
		total += d
	}
	fields["t_total"] = milliseconds(total)
	return fields
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}
