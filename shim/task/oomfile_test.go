package task_test

import (
	"os"
	"path/filepath"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/shim/task"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// Podman and CRI-O look for a file in their bundle when a container of the command line
// has ended. That of an earlier container of the bundle does not count.
func TestOOMFileForTheCommandLine(t *testing.T) {
	s := newShim(t, func(o *task.Options) { o.Namespace, o.Address = engine.CommandLine, "/run/bundles" })
	r, engineDir := s.request(t, sandboxID), t.TempDir()
	note := filepath.Join(engineDir, "oom")
	if err := os.Symlink(engineDir, filepath.Join(r.Bundle, bundle.OriginLink)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(note); !os.IsNotExist(err) {
		t.Errorf("the note of an earlier container: %v, want it removed", err)
	}
	if _, err := s.Start(t.Context(), &taskapi.StartRequest{ID: sandboxID}); err != nil {
		t.Fatal(err)
	}
	s.host.Agent.OOM(sandboxID)
	s.exit(t, sandboxID, "", 137)
	if exit, err := s.Wait(t.Context(), &taskapi.WaitRequest{ID: sandboxID}); err != nil || exit.ExitStatus != 137 {
		t.Errorf("waited: %v, %v", exit, err)
	}
	if _, err := os.Stat(note); err != nil {
		t.Errorf("the note that it ran out of memory: %v", err)
	}
}
