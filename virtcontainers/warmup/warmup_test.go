package warmup

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The program writes what the spare expects.
func TestProgram(t *testing.T) {
	b, err := Make(filepath.Join(t.TempDir(), "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(b.RootfsPath(), programName)
	if out, err := exec.CommandContext(t.Context(), file).CombinedOutput(); err != nil || string(out) != Output {
		t.Errorf("it wrote %q, %v", out, err)
	}
}

// The root file system has what the mounts need, and a bundle that cannot be made
// leaves nothing.
func TestMake(t *testing.T) {
	b, err := Make(filepath.Join(t.TempDir(), "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Spec.Mounts {
		top := filepath.Join(b.RootfsPath(), firstOf(m.Destination))
		if info, err := os.Stat(top); err != nil || !info.IsDir() {
			t.Errorf("for the mount at %s: %v", m.Destination, err)
		}
	}
	if err := os.RemoveAll(b.Dir); err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(in, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(filepath.Join(in, "bundle")); err == nil {
		t.Error("made in a file")
	}
	if _, err := Make(filepath.Join(t.TempDir(), string(make([]byte, 300)))); err == nil {
		t.Error("made with an impossible name")
	}
}

// firstOf returns a path's first part.
func firstOf(path string) string {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(path) {
		path = dir
	}
	return path
}
