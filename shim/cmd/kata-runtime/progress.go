package main

import (
	"fmt"
	"io"

	standalone "github.com/katabox/katabox/standalone/command"
)

// progress shows which step of a long operation runs: in one line of a terminal,
// which end clears, otherwise as a line for each step.
type progress struct {
	to       io.Writer
	terminal bool
	began    bool
}

func newProgress(to io.Writer) *progress {
	return &progress{to: to, terminal: standalone.IsTerminal(to)}
}

// step shows a step, in place of the one before it.
func (p *progress) step(text string) {
	if p.terminal {
		fmt.Fprintf(p.to, "\r\x1b[K%s ...", text)
	} else {
		fmt.Fprintln(p.to, text)
	}
	p.began = true
}

// end clears the terminal's line.
func (p *progress) end() {
	if p.terminal && p.began {
		fmt.Fprint(p.to, "\r\x1b[K")
	}
}
