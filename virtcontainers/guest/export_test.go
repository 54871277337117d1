package guest

// For the tests outside, which need fakeguest, which needs this package.
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
