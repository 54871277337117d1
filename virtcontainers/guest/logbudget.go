package guest

import (
	"time"

	"golang.org/x/time/rate"
)

// What a guest may write into the host's log: a burst, enough for a boot or a
// long crash report, and then a rate. A bound of lines, 500 a second, was not
// enough: long lines made 288 MiB in half a minute.
const (
	logBurst     = 1 << 20 // bytes
	logPerSecond = 4 << 10 // bytes
	// lineCost is the cost of a line in addition to its text: the host's time,
	// level and fields.
	lineCost = 128
	// reportEvery is the minimum time between two lines that say how much was
	// dropped.
	reportEvery = time.Second
)

// logBudget decides which of a guest's lines are logged. It is used by one
// goroutine.
type logBudget struct {
	limiter  *rate.Limiter
	dropped  int
	reported time.Time
}

func newLogBudget() *logBudget {
	return &logBudget{limiter: rate.NewLimiter(logPerSecond, logBurst)}
}

// take reports whether a line of n bytes may be logged now, and how many lines
// were dropped before it, if that is due to be logged.
func (b *logBudget) take(n int) (ok bool, droppedBefore int) {
	now := time.Now()
	if !b.limiter.AllowN(now, n+lineCost) {
		b.dropped++
		return false, 0
	}
	if b.dropped > 0 && now.Sub(b.reported) >= reportEvery {
		droppedBefore, b.dropped, b.reported = b.dropped, 0, now
	}
	return true, droppedBefore
}
