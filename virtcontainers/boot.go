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
	// undo reverts what do made; nil if there is nothing to revert. It is
	// called only after do succeeded: a do that fails cleans up after itself.
	undo func(context.Context) error
}

// boot is the outcome of running a list of steps: how long each took, and how
// to undo it.
type boot struct {
	done   []step
	times  map[string]time.Duration
	failAt string
	// failed is the name of the step that failed, if any.
	failed string
	// recorder records the steps' spans under the container's id; an empty id
	// stands for the pod.
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

// unwind undoes all that was done. It goes on when ctx ends: each undo has its
// own timeout. A second call does nothing.
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

// fields returns the durations, in milliseconds, for the pod's one log line
// about its start: it shows which step was slow.
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
