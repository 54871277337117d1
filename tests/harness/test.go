package harness

import (
	"context"
	"testing"
	"time"
)

// Test returns a test's context, for its calls to the daemon, which ends within limit.
// After the test's own clean-ups, which remove its pods, it makes the checks, such as
// Settled, and shows the end of the daemon's log if the test failed.
func (d *Daemon) Test(t testing.TB, limit time.Duration, checks ...func(context.Context) error) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(d.Context(t.Context()), limit)
	mark := d.LogSize()
	t.Cleanup(func() {
		cancel()
		for _, check := range checks {
			if err := check(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Log(d.LogSince(mark, 80))
		}
	})
	return ctx
}
