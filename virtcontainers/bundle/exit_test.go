package bundle

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExitIsKept(t *testing.T) {
	dir := t.TempDir()
	if err := ForgetExit(dir); err != nil {
		t.Errorf("none to forget: %v", err)
	}
	if _, err := LoadExit(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, want := range []Exit{{Status: 3, At: time.Unix(1, 5).UTC()}, {Status: 255, At: time.Unix(2, 0).UTC()}} {
		if err := SaveExit(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := LoadExit(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("exit (-want +got):\n%s", diff)
		}
	}
	if err := ForgetExit(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadExit(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("forgotten, and yet: %v", err)
	}
}

func TestBadExit(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, exitFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadExit(dir); err == nil {
		t.Error("a broken file was read")
	}
	if err := SaveExit(filepath.Join(dir, "none"), Exit{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("saved where nothing is: %v", err)
	}
}

// The note of a lack of memory touches nothing else of that name: the directory is the
// engine's, and may be in the container's reach.
func TestOOMNote(t *testing.T) {
	dir := t.TempDir()
	note, victim := filepath.Join(dir, oomFile), filepath.Join(t.TempDir(), "victim")
	check := func(what string, err error, there bool) {
		t.Helper()
		if _, statErr := os.Lstat(note); err != nil || (statErr == nil) != there {
			t.Errorf("%s: %v; the note: %v, want it there: %v", what, err, statErr, there)
		}
	}
	check("forget none", ForgetOOM(dir), false)
	check("save", SaveOOM(dir), true)
	check("save again", SaveOOM(dir), true)
	check("forget", ForgetOOM(dir), false)
	if err := errors.Join(os.WriteFile(victim, []byte("text"), 0o600), os.Symlink(victim, note)); err != nil {
		t.Fatal(err)
	}
	check("save over a link", SaveOOM(dir), true)
	if text, err := os.ReadFile(victim); string(text) != "text" || err != nil {
		t.Errorf("what the link leads to has %q, %v", text, err)
	}
	check("forget a link", ForgetOOM(dir), false)
	if err := errors.Join(os.Mkdir(note, 0o700), os.WriteFile(filepath.Join(note, "data"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	check("forget a directory", ForgetOOM(dir), true)
	check("save over a directory", SaveOOM(dir), true)
	if _, err := os.Stat(filepath.Join(note, "data")); err != nil {
		t.Error(err)
	}
	if err := SaveOOM(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("saved where nothing is: %v", err)
	}
}
