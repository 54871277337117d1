package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// stage prints the demo: numbered steps with their time, notes below them.
type stage struct {
	out   io.Writer
	start time.Time
	steps int
	bold  string
	plain string
}

func newStage(out *os.File) *stage {
	s := &stage{out: out, start: time.Now()}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		s.bold, s.plain = "\x1b[1m", "\x1b[0m"
	}
	return s
}

// step begins a step.
func (s *stage) step(format string, args ...any) {
	s.steps++
	fmt.Fprintf(s.out, "%s[%4.1fs] %d. %s%s\n", s.bold, time.Since(s.start).Seconds(), s.steps, fmt.Sprintf(format, args...), s.plain)
}

// note adds lines below the step.
func (s *stage) note(format string, args ...any) {
	for line := range strings.SplitSeq(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		fmt.Fprintf(s.out, "           %s\n", line)
	}
}

// end prints the end of the demo.
func (s *stage) end() {
	fmt.Fprintf(s.out, "%s[%4.1fs] done%s\n", s.bold, time.Since(s.start).Seconds(), s.plain)
}
