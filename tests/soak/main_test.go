package soak

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// plan is how long a run is.
var plan struct {
	pods, atOnce int
	time         time.Duration
}

// engine runs all pods.
var engine *harness.Daemon

func TestMain(m *testing.M) {
	ctx := context.Background()
	harness.Main(m, func() error { return prepare(ctx) }, func() error { return engine.Stop(ctx) })
}

func prepare(ctx context.Context) (err error) {
	if plan.pods, err = number("KATABOX_SOAK_PODS", 10); err != nil {
		return err
	}
	if plan.atOnce, err = number("KATABOX_SOAK_AT_ONCE", 4); err != nil {
		return err
	}
	if plan.time, err = duration("KATABOX_SOAK_TIME", 30*time.Second); err != nil {
		return err
	}
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	releases, err := harness.ReleasesFromEnv(layout)
	if err != nil {
		return err
	}
	engine, err = harness.Start(ctx, harness.Options{Layout: layout, Release: releases[0], Runtime: harness.Kata})
	return err
}

func number(variable string, unset int) (int, error) {
	text := os.Getenv(variable)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%q: want a number above 0", variable, text)
	}
	return n, nil
}

func duration(variable string, unset time.Duration) (time.Duration, error) {
	text := os.Getenv(variable)
	if text == "" {
		return unset, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf(`%s=%q: want a time like "1h" or "90s"`, variable, text)
	}
	return d, nil
}
