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
