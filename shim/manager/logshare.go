package manager

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/katabox/katabox/shim/journal"
)

// Foreign lines may use half of the shim's log. A guest can cause any number of them,
// and there must be room for the shim's own lines.
const (
	foreignBurst     = logBurst / 2
	foreignPerSecond = logPerSecond / 2
	// reportEvery is the minimum time between two lines that say how much was left out.
	reportEvery = time.Second
)

// foreignShare drops foreign lines that exceed their share. The logger formats lines
// concurrently.
type foreignShare struct {
	logrus.Formatter

	limiter *rate.Limiter

	mu sync.Mutex // guards what follows
	// lines and bytes were left out since reported.
	lines, bytes int
	reported     time.Time
}

func newForeignShare(f logrus.Formatter) *foreignShare {
	return &foreignShare{Formatter: f, limiter: rate.NewLimiter(foreignPerSecond, foreignBurst)}
}

// Format implements logrus.Formatter. A line that is left out has no text.
func (s *foreignShare) Format(e *logrus.Entry) ([]byte, error) {
	text, err := s.Formatter.Format(e)
	now := time.Now()
	over := err == nil && journal.IsForeign(e) && !s.limiter.AllowN(now, len(text))
	s.mu.Lock()
	defer s.mu.Unlock()
	if over {
		s.lines++
		s.bytes += len(text)
		return nil, nil
	}
	if s.lines == 0 || now.Sub(s.reported) < reportEvery {
		return text, err
	}
	report := leftOut("the guest and of QEMU", s.lines, s.bytes, foreignPerSecond)
	s.lines, s.bytes, s.reported = 0, 0, now
	return append([]byte(report), text...), err
}
