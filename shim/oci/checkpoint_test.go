package oci

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Directories of calls that were killed go, but none that another call may be using,
// or that has a checkpoint.
func TestSweepFresh(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{"new-old": old, "new-young": time.Now(), "new-full": old, "other": old} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "new-full" {
			if err := os.WriteFile(filepath.Join(path, "sandbox.katabox"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	sweepFresh(dir, time.Now().Add(-time.Minute))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"new-full", "new-young", "other"}, left); diff != "" {
		t.Error(diff)
	}
}
