package main

import (
	"strings"
	"testing"
)

func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{
		false: "one\ntwo\n",
		true:  "\r\x1b[Kone ...\r\x1b[Ktwo ...\r\x1b[K",
	} {
		var out strings.Builder
		p := newProgress(&out)
		p.terminal = terminal
		p.end() // nothing was shown
		p.step("one")
		p.step("two")
		p.end()
		if out.String() != want {
			t.Errorf("on a terminal %t: %q, want %q", terminal, out.String(), want)
		}
	}
}
