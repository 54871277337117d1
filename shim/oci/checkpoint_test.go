package oci

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/shim/shimtest/files"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
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

// saved makes a directory with a complete checkpoint in dir.
func saved(t *testing.T, dir string) (fresh string) {
	t.Helper()
	fresh = filepath.Join(dir, freshPrefix+rand.Text())
	if err := os.Mkdir(fresh, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fresh, checkpoint.File), []byte("saved"), 0o600); err != nil {
		t.Fatal(err)
	}
	return fresh
}

// A checkpoint is put in the place of a former one, and no link in the directory is
// followed.
func TestPlaceCheckpoint(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	for _, name := range []string{inventory, checkpoint.File} {
		if err := os.Symlink(other, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := saved(t, dir)
	if err := placeCheckpoint(fresh, dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		other: "other", filepath.Join(dir, inventory): inventoryText, filepath.Join(dir, checkpoint.File): "saved",
	} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v, want %q", path, text, err, want)
		}
	}
	if _, err := os.Stat(fresh); err == nil {
		t.Errorf("%s is left", fresh)
	}
}

// A checkpoint that cannot be put into its directory stays where it is: the error says
// that it is there.
func TestPlaceCheckpointFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, inventory), 0o700); err != nil {
		t.Fatal(err)
	}
	fresh := saved(t, dir)
	if err := placeCheckpoint(fresh, dir); err == nil {
		t.Error("it was put in the place of a directory")
	}
	if text, err := os.ReadFile(filepath.Join(fresh, checkpoint.File)); err != nil || string(text) != "saved" {
		t.Errorf("it has %q, %v", text, err)
	}
}

// Saving a container takes no longer than its shim answers.
func TestCheckpointWithAStoppedShim(t *testing.T) {
	r := newRuntime(t)
	nameProgram(t, r)
	r.answerTimeout = 2 * time.Second
	pid := create(t, r, "c1", CreateOptions{Bundle: newBundle(t, nil)})
	stopShim(t, files.ShimPID(t, r.dir("c1")))
	began := time.Now()
	if err := r.Checkpoint(t.Context(), "c1", t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "ask the shim") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
	if err := r.Delete(t.Context(), "c1", true); err != nil {
		t.Error(err)
	}
	reap(t, pid)
}
