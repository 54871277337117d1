package guest

// Exported for the external tests, which use fakeguest, which imports this
// package.
var (
	LogLine      = logLine
	ForwardLines = forwardLines
)

// The log's budget.
const (
	LogBurst     = logBurst
	LogPerSecond = logPerSecond
	LineCost     = lineCost
)
