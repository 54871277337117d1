package ginkgo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Progress passes on a suite's output and prints its progress now and then: the
// reporter prints a dot for each case that ran (ginkgo, reporters).
type Progress struct {
	name  string
	start time.Time
	done  chan struct{}
	ended chan struct{}

	// mu guards the rest.
	mu            sync.Mutex
	out           io.Writer
	cases, failed int
}

// StartProgress begins to print. The caller must Stop it; output is passed on to
// out.
func StartProgress(name string, every time.Duration, out io.Writer) *Progress {
	p := &Progress{name: name, start: time.Now(), done: make(chan struct{}), ended: make(chan struct{}), out: out}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-p.done:
				return
			case <-time.After(every):
				p.say("")
			}
		}
	}()
	return p
}

// Write is for the suite's output.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cases += strings.Count(string(b), "•")
	p.failed += strings.Count(string(b), "• [FAILED]")
	return p.out.Write(b)
}

func (p *Progress) say(end string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(os.Stdout, "%s: %d cases, %d failed, %s%s\n", p.name, p.cases, p.failed, time.Since(p.start).Round(time.Second), end)
}

// Stop prints the last line.
func (p *Progress) Stop() {
	close(p.done)
	<-p.ended
	p.say(", done")
}
