package harness

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// Main runs a suite's tests, which need root, after prepare and before finish, and exits.
func Main(m *testing.M, prepare, finish func() error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stdout, "SKIP: containerd needs root")
		os.Exit(0)
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := finish(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after the tests:", err)
		code = 1
	}
	os.Exit(code)
}

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
