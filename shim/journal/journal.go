package journal

import (
	"context"
	"sort"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
)

// limit bounds each of the two lists, in bytes.
const limit = 64 << 10

// Journal is a logrus.Hook that keeps lines. Its methods may be called from several
// goroutines, and none of them logs.
type Journal struct {
	mu sync.Mutex // guards what follows
	// last is the number of the newest line. The first has number 1.
	last uint64
	// own are the lines of the shim, others the foreign ones (IsForeign).
	own, others list
	changed     chan struct{} // closed and replaced when a line comes
}

var _ logrus.Hook = (*Journal)(nil)

// line is one line as JSON.
type line struct {
	number uint64
	text   []byte
}

// list has the newest lines, at most limit bytes of them.
type list struct {
	lines []line
	bytes int
}

// New makes a Journal without lines.
func New() *Journal { return &Journal{changed: make(chan struct{})} }

// Levels implements logrus.Hook.
func (*Journal) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook. It never fails: a line that cannot be encoded is
// replaced by one that says so.
func (j *Journal) Fire(e *logrus.Entry) error {
	text, foreign := encode(e), IsForeign(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	kept := &j.own
	if foreign {
		kept = &j.others
	}
	kept.add(line{number: j.last, text: text})
	close(j.changed)
	j.changed = make(chan struct{})
	return nil
}

// ttrpcPrefix begins the lines of the ttrpc package. Its client logs every frame that a
// guest sends for a call that has ended.
const ttrpcPrefix = "ttrpc: "

// IsForeign reports whether a line is not the shim's own: one with a source, or one
// that a guest may have ttrpc log.
func IsForeign(e *logrus.Entry) bool {
	_, sourced := e.Data[sourceField]
	return sourced || strings.HasPrefix(e.Message, ttrpcPrefix)
}

func (l *list) add(newest line) {
	l.lines = append(l.lines, newest)
	l.bytes += len(newest.text)
	for l.bytes > limit && len(l.lines) > 1 {
		l.bytes -= len(l.lines[0].text)
		l.lines[0] = line{}
		l.lines = l.lines[1:]
	}
}

// after returns the lines with a higher number.
func (l *list) after(number uint64) []line {
	at := sort.Search(len(l.lines), func(i int) bool { return l.lines[i].number > number })
	return l.lines[at:]
}

// After returns the kept lines with higher numbers, each a JSON object and a
// newline; with 0 it returns all kept lines. Missing numbers are those of lines
// that are no longer kept.
func (j *Journal) After(number uint64) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	own, others := j.own.after(number), j.others.after(number)
	var out []byte
	for len(own) > 0 || len(others) > 0 {
		if len(others) == 0 || len(own) > 0 && own[0].number < others[0].number {
			out, own = own[0].appendTo(out), own[1:]
		} else {
			out, others = others[0].appendTo(out), others[1:]
		}
	}
	return out
}

// Wait returns when there is a line with a higher number, or ctx is done.
func (j *Journal) Wait(ctx context.Context, number uint64) {
	for {
		j.mu.Lock()
		last, changed := j.last, j.changed
		j.mu.Unlock()
		if last > number {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
