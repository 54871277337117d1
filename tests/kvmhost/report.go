package main

import (
	"bytes"
	"io"
	"regexp"
	"sync"
	"time"
)

// report reads a test program's verbose output as it arrives, and copies it.
// Its methods may be called from several goroutines.
type report struct {
	to io.Writer

	mu   sync.Mutex
	line []byte // the incomplete last line
	// results are PASS, FAIL or SKIP by top-level test.
	results map[string]string
	// skipped are all tests that were skipped, with subtests.
	skipped []string
	// tail is the end of what was printed.
	tail []byte
	// current is the running test; at is when the last line arrived.
	current string
	at      time.Time
}

// maxTail bounds a report's tail, in bytes.
const maxTail = 256 << 10

func newReport(to io.Writer) *report {
	return &report{to: to, results: map[string]string{}, at: time.Now()}
}

// The lines that "go test -v" prints (testing package).
var (
	runLine    = regexp.MustCompile(`^=== RUN +(\S+)`)
	resultLine = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// Write implements io.Writer.
func (r *report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Now()
	r.tail = append(r.tail, p...)
	if over := len(r.tail) - maxTail; over > 0 {
		r.tail = bytes.Clone(r.tail[over:])
	}
	r.line = append(r.line, p...)
	for {
		line, rest, ok := bytes.Cut(r.line, []byte{'\n'})
		if !ok {
			break
		}
		r.note(line)
		r.line = bytes.Clone(rest)
	}
	return r.to.Write(p)
}

func (r *report) note(line []byte) {
	if m := runLine.FindSubmatch(line); m != nil {
		r.current = string(m[1])
	}
	m := resultLine.FindSubmatch(line)
	if m == nil {
		return
	}
	result, name := string(m[2]), string(m[3])
	if len(m[1]) == 0 {
		r.results[name] = result
	}
	if result == "SKIP" {
		r.skipped = append(r.skipped, name)
	}
}

// silence returns how long ago the last line arrived, and the running test.
func (r *report) silence() (time.Duration, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.at), r.current
}
