package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Each container starts with this program, and waits for the packages that are
// initialised before package inside: ours do next to nothing there.
func TestPackagesAreInitialisedQuickly(t *testing.T) {
	const most = 50 // allocations; a regular expression takes some hundred
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &trace)
	}
	ours, stage := 0, false
	for lines := bufio.NewScanner(&trace); lines.Scan() && !stage; {
		var name string
		var at, took float64
		var size, allocs int
		_, err := fmt.Sscanf(lines.Text(), "init %s @%g ms, %g ms clock, %d bytes, %d allocs", &name, &at, &took, &size, &allocs)
		if err != nil || !strings.HasPrefix(name, "github.com/katabox/") {
			continue
		}
		ours++
		stage = strings.HasSuffix(name, "/agent/container/inside")
		if allocs > most {
			t.Errorf("%s makes %d allocations, want at most %d", name, allocs, most)
		}
	}
	if ours == 0 || !stage {
		t.Errorf("the trace has %d of our packages, the stage's among them: %t\n%s", ours, stage, &trace)
	}
}
