package oci

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Podman saves and restores containers. It wants a criu that it can ask for its version,
// and does nothing else with it.
func TestPodmanCheckpoint(t *testing.T) {
	if _, err := exec.LookPath("criu"); err != nil {
		t.Skip("criu is not installed")
	}
	useSavingQEMU(t)
	p := newPodman(t)
	p.importImage()
	p.want(0, "", "run", "-d", "--name", "c", "--network", "none", "localhost/busybox:1", "sh", "-c",
		"trap 'exit 5' TERM; n=0; while sleep 0.05; do n=$((n+1)); echo $n; done")
	p.counts("c", 5)
	p.want(0, "c", "container", "checkpoint", "--leave-running", "c")
	p.want(0, "running", "inspect", "--format", "{{.State.Status}}", "c")
	p.want(0, "c", "container", "checkpoint", "--tcp-established", "--file-locks", "c") // into the same directory
	p.want(0, "exited", "inspect", "--format", "{{.State.Status}}", "c")
	saved := p.counts("c", 0)
	p.want(0, "c", "container", "restore", "c")
	p.counts("c", saved)

	archive := filepath.Join(p.dir, "saved.tar.zst")
	p.want(0, "c", "container", "checkpoint", "--export", archive, "c")
	saved = p.counts("c", 0)
	p.want(0, "", "rm", "c")
	for _, name := range []string{"one", "two"} {
		p.want(0, "", "container", "restore", "--import", archive, "--name", name)
		p.counts(name, saved) // Podman exports the log, too
		p.want(0, "", "stop", "--time", "60", name)
		p.want(0, "5 exited", "inspect", "--format", "{{.State.ExitCode}} {{.State.Status}}", name)
	}
}

// counts waits until a container's log has more than that many lines, which must be all
// numbers from 1, and returns how many there are.
func (p *podman) counts(name string, more int) int {
	p.t.Helper()
	var lines []string
	for deadline := time.Now().Add(patience); len(lines) <= more; time.Sleep(100 * time.Millisecond) {
		if lines = strings.Fields(p.run("logs", name).out); time.Now().After(deadline) {
			p.t.Fatalf("%s has written only %q", name, lines)
		}
	}
	for i, line := range lines {
		if want := strconv.Itoa(i + 1); line != want {
			p.t.Fatalf("%s: line %d is %q: %q", name, i, line, lines)
		}
	}
	return len(lines)
}
