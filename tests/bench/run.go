package main

import (
	"context"
	"fmt"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// runTimeout bounds one measured run.
const runTimeout = time.Minute

// timeCtrRun runs "ctr run --rm busybox true" and returns how long it took, in
// milliseconds.
func timeCtrRun(ctx context.Context, d *harness.Daemon, runtime harness.Runtime, options ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := d.CtrRunWith(ctx, runtime, options, d.NewID("bench"), image.Busybox, "true")
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("ctr run with %s: %w: %s", runtime.Name, err, out)
	}
	return milliseconds(took), nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
