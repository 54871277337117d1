package guest

import (
	"context"

	"github.com/containerd/log"
)

// ConsoleLog returns a function that writes lines of a guest's console into the
// host's log, with source=console, within a budget of bytes. It must be called
// by one goroutine at a time.
func ConsoleLog(ctx context.Context) func(line string) {
	entry := log.G(ctx).WithField("source", "console")
	budget := newLogBudget()
	return func(line string) {
		ok, dropped := budget.take(len(line))
		if dropped > 0 {
			entry.Warnf("%d lines of the guest's console were dropped", dropped)
		}
		if ok {
			entry.Info(line)
		}
	}
}
