package oci

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Directories of calls that were killed go, but none that another call may be using,
// that has a checkpoint, or that is the user's.
func TestSweepFresh(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	young, full := freshPrefix+rand.Text(), freshPrefix+rand.Text()
	for name, at := range map[string]time.Time{freshPrefix + rand.Text(): old, young: time.Now(), full: old, "new-mine": old, "other": old} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == full {
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
	want := []string{full, young, "new-mine", "other"}
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
}
