package guest

import (
	"context"
	"io"
)

// Exported for the external tests, which use fakeguest, which imports this
// package.
var LogLine = logLine

// ForwardLines forwards with a new budget.
func ForwardLines(ctx context.Context, r io.Reader) error {
	return forwardLines(ctx, r, newLogBudget())
}

// The log's budget.
const (
	LogBurst     = logBurst
	LogPerSecond = logPerSecond
	LineCost     = lineCost
)
