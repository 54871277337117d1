package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/katabox/katabox/agent/container/inside"
)

// Each container starts with this program, and waits for the packages that are
// initialised before package inside: ours do next to nothing there.
func TestPackagesAreInitialisedQuickly(t *testing.T) {
	const most = 50 // allocations; a regular expression takes some hundred
	cmd := exec.CommandContext(t.Context(), os.Args[0], inside.Nothing)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &trace)
	}
	ours := 0
	for lines := bufio.NewScanner(&trace); lines.Scan(); {
		var name string
		var at, took float64
		var size, allocs int
		_, err := fmt.Sscanf(lines.Text(), "init %s @%g ms, %g ms clock, %d bytes, %d allocs", &name, &at, &took, &size, &allocs)
		if err != nil || !strings.HasPrefix(name, "github.com/katabox/") {
			continue
		}
		ours++
		if allocs > most {
			t.Errorf("%s makes %d allocations, want at most %d", name, allocs, most)
		}
	}
	if ours == 0 {
		t.Errorf("the trace has none of our packages:\n%s", &trace)
	}
}
