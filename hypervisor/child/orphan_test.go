package child

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A stage whose parent was killed before PDEATHSIG was set executes nothing: no
// later death would end the program.
func TestOrphanedStage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	for name, orphaned := range map[string]bool{"with a parent": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			jail, err := json.Marshal(&Jail{Show: []string{"/usr", "/bin", "/lib", "/lib64"}, Dirs: []Shown{{out, "/out"}}})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = []string{"/usr/bin/env", "mkdir", "/out/ran"}
			cmd.Env = []string{"PATH=/usr/bin:/bin", jailEnv + "=" + string(jail)}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
			runStage(t, cmd, filepath.Join(out, "ran"), orphaned)
		})
	}
}

// So does a child with neither a jail nor a room.
func TestOrphanedPlainStage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making namespaces needs root")
	}
	for name, orphaned := range map[string]bool{"with a parent": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(t.TempDir(), "ran")
			cmd, err := command(Options{Path: "/usr/bin/mkdir", Args: []string{ran}, Cloneflags: unix.CLONE_NEWPID})
			if err != nil {
				t.Fatal(err)
			}
			runStage(t, cmd, ran, orphaned)
		})
	}
}

// runStage runs a stage, whose stderr has no reader if its parent is to be gone, and
// checks that its program, which makes the directory ran, runs unless it is.
func runStage(t *testing.T, cmd *exec.Cmd, ran string, orphaned bool) {
	t.Helper()
	reader, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	defer reader.Close()
	if orphaned {
		reader.Close()
	}
	cmd.Stderr = stderr
	if err := cmd.Run(); (err != nil) != orphaned {
		t.Errorf("the stage ended with %v", err)
	}
	if _, err := os.Stat(ran); (err != nil) != orphaned {
		t.Errorf("after the stage: %v", err)
	}
}
