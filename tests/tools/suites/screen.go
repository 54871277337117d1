package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// quiet is the silence after which a line says what is running.
const quiet = 15 * time.Second

// slow is the duration from which a test that passed gets its own line.
const slow = time.Second

// screen prints progress: lines for what has ended, the whole output of what
// failed, and what is running while nothing else is printed. On a terminal the
// last is one line that is overwritten. Its methods may be called from
// several goroutines.
type screen struct {
	out      io.Writer
	terminal bool
	start    time.Time

	mu      sync.Mutex
	last    time.Time
	running []*activity
}

// activity is the state of a running suite.
type activity struct {
	name     string
	ended    int
	current  *result
	began    time.Time
	packages int
}

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{out: out, terminal: terminal, start: time.Now(), last: time.Now()}
}

// say prints a line.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(fmt.Sprintf(format, args...))
}

// line prints one line; the caller holds s.mu.
func (s *screen) line(text string) {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	fmt.Fprintf(s.out, "[%6.1fs] %s\n", time.Since(s.start).Seconds(), text)
	s.last = time.Now()
}

func (s *screen) begin(u suite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, &activity{name: u.name, began: time.Now()})
	s.line(u.name + ": started")
}

// activity returns a running suite's, or a new one for a second try, which has
// none; the caller holds s.mu.
func (s *screen) activity(name string) *activity {
	for _, a := range s.running {
		if a.name == name {
			return a
		}
	}
	return &activity{name: name}
}

// beginTest notes a test that has begun.
func (s *screen) beginTest(u suite, r *result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity(u.name).current = r
}

// test notes a test that has ended.
func (s *screen) test(u suite, r *result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity(u.name).ended++
	top := !strings.Contains(r.name, "/")
	if r.outcome == fail || top && r.outcome == pass && r.elapsed >= slow {
		s.line(fmt.Sprintf("%s: %-4s %s (%.1fs)", u.name, strings.ToUpper(r.outcome), r.name, r.elapsed.Seconds()))
	}
}

// pkg notes a package that has ended.
func (s *screen) pkg(u suite, p *pkgResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity(u.name).packages++
	if p.outcome == fail || len(p.tests) > 0 && len(u.packages) > 1 {
		s.line(fmt.Sprintf("%s: %-4s %s, %d tests (%.1fs)", u.name, strings.ToUpper(p.outcome), shortPackage(p.name),
			len(p.tests), p.elapsed.Seconds()))
	}
}

// end prints a suite's verdict, and the whole output of its failures.
func (s *screen) end(r *report) {
	s.mu.Lock()
	for i, a := range s.running {
		if a.name == r.suite.name {
			s.running = append(s.running[:i], s.running[i+1:]...)
			break
		}
	}
	verdict := "passed"
	if len(r.faults) > 0 {
		verdict = fmt.Sprintf("FAILED, %d faults", len(r.faults))
	}
	s.line(fmt.Sprintf("%s: %s (%.0fs)", r.suite.name, verdict, r.took.Seconds()))
	s.mu.Unlock()
	for _, f := range r.faults {
		s.show(f)
	}
}

// show prints a fault with all of its output.
func (s *screen) show(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line("FAIL " + f.String())
	fmt.Fprintf(s.out, "%s\nto run it again: %s\n", strings.TrimRight(string(f.output), "\n"), f.shellLine())
}

// watch prints what is running while nothing else is printed, until ctx ends.
func (s *screen) watch(ctx context.Context) {
	period := quiet
	if s.terminal {
		period = time.Second
	}
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.tick()
		}
	}
}

func (s *screen) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for _, a := range s.running {
		words = append(words, a.String())
	}
	text := strings.Join(words, "; ")
	switch {
	case text == "":
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K%.100s", text)
	case time.Since(s.last) >= quiet:
		s.line("... " + text)
	}
}

func (a *activity) String() string {
	text := fmt.Sprintf("%s: %.0fs", a.name, time.Since(a.began).Seconds())
	if a.ended > 0 {
		text += fmt.Sprintf(", %d tests", a.ended)
	}
	if a.current != nil {
		text += fmt.Sprintf(", %s for %.0fs", a.current.name, time.Since(a.current.began).Seconds())
	}
	return text
}
