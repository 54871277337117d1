package cri

import (
	"context"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
)

// bed is what all tests share: one containerd, started at first use.
var bed struct {
	layout  harness.Layout
	runtime harness.Runtime
	env     *env.Env
}

func TestMain(m *testing.M) { harness.Main(m, prepare, finish) }

// finish stops the engine, if a test needed it.
func finish() error {
	if bed.env == nil {
		return nil
	}
	return bed.env.Stop(context.Background())
}

func prepare() (err error) {
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	bed.runtime, err = harness.RuntimeFromEnv()
	return err
}

// within runs a test with its timeout and its leak check, and prints
// containerd's log if it failed.
func within(t *testing.T, timeout time.Duration, run func(context.Context, *testing.T, *env.Env)) {
	t.Helper()
	if bed.env == nil {
		e, err := env.Start(t.Context(), env.Options{Layout: bed.layout, Runtime: bed.runtime})
		if err != nil {
			t.Fatal(err)
		}
		bed.env = e
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	mark := bed.env.Daemon.LogSize()
	t.Cleanup(func() {
		cancel()
		if err := bed.env.RemovePods(context.Background()); err != nil {
			t.Error(err)
		}
		if err := bed.env.Settled(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(bed.env.Daemon.LogSince(mark, 60))
		}
	})
	run(ctx, t, bed.env)
}
