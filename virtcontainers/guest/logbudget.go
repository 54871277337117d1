package guest

import (
	"time"

	"golang.org/x/time/rate"
)

// What a guest may write into the host's log: a burst, for a boot or a crash
// told at length, and then so much a second. 500 lines a second were no bound:
// long lines made 288 MiB in half a minute.
const (
	logBurst     = 1 << 20 // bytes
	logPerSecond = 4 << 10 // bytes
	// lineCost is what a line costs beside its text: the host's time, level
	// and fields.
	lineCost = 128
	// reportEvery is the least time between two lines that say how much was
	// left out.
	reportEvery = time.Second
)

// logBudget decides which lines of a guest's are logged. It is used by one
// goroutine.
type logBudget struct {
	limiter  *rate.Limiter
	dropped  int
	reported time.Time
}

func newLogBudget() *logBudget {
	return &logBudget{limiter: rate.NewLimiter(logPerSecond, logBurst)}
}

// take reports whether a line of n bytes may be logged now, and how many
// were dropped before it, when that is to be said.
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
