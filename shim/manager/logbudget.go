package manager

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/time/rate"
)

// How much one shim may write into the engine's log, half of it for lines that a guest
// can cause (foreignShare). Some are written for each frame that it sends (ttrpc's
// own, for a stream that is gone): a hostile guest filled the host's disk with them, at
// 6 MiB a second.
const (
	logBurst     = 4 << 20  // bytes
	logPerSecond = 16 << 10 // bytes
)

// logBudget passes lines on while there is budget, and then logs how much it
// dropped. Its caller, the logger, writes one line at a time.
type logBudget struct {
	w       io.Writer
	limiter *rate.Limiter
	// lines and bytes were dropped since the last line that was written.
	lines, bytes int
}

func newLogBudget(w io.Writer) *logBudget {
	return &logBudget{w: w, limiter: rate.NewLimiter(logPerSecond, logBurst)}
}

// Write implements io.Writer. Dropping a line is not an error.
func (b *logBudget) Write(line []byte) (int, error) {
	if !b.limiter.AllowN(time.Now(), len(line)) {
		b.lines++
		b.bytes += len(line)
		return len(line), nil
	}
	if b.lines > 0 {
		_, _ = io.WriteString(b.w, leftOut("the shim's log", b.lines, b.bytes, logPerSecond))
		b.lines, b.bytes = 0, 0
	}
	return b.w.Write(line)
}

// leftOut is the line of the log for lines that were left out of it.
func leftOut(of string, lines, bytes, perSecond int) string {
	return fmt.Sprintf("time=%q level=warning msg=\"%d lines of %s, %d bytes, were left out: more than %d KiB a second\"\n",
		time.Now().Format(time.RFC3339Nano), lines, of, bytes, perSecond>>10)
}
