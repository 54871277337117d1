package virtcontainers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// onEachKind runs a test with each way to make a file. That a file system needs the
// second one is a matter of tests/chaos, which has one.
func onEachKind(t *testing.T, run func(t *testing.T, create func(path string) (*lateFile, error))) {
	t.Helper()
	t.Run("unnamed", func(t *testing.T) { run(t, createLate) })
	t.Run("temporary", func(t *testing.T) { run(t, createTemporary) })
}

// names lists a directory.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A file has its name when it is complete, and not before.
func TestLateFile(t *testing.T) {
	onEachKind(t, func(t *testing.T, create func(string) (*lateFile, error)) {
		path := filepath.Join(t.TempDir(), "file")
		f, err := create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it has its name already: %v", err)
		}
		if left := names(t, filepath.Dir(path)); (len(left) > 0) != (f.temporary != "") {
			t.Errorf("the directory has %v", left)
		}
		if err := f.finish(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); string(text) != "text" || err != nil {
			t.Errorf("it has %q, %v", text, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode(); mode != 0o600 {
			t.Errorf("its mode is %v", mode)
		}
		if _, err := createLate(path); !errors.Is(err, os.ErrExist) {
			t.Errorf("a second one: %v", err)
		}
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if left := names(t, filepath.Dir(path)); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	})
}

// A file that is given up leaves nothing, nor one whose name another has taken.
func TestLateFileGivenUp(t *testing.T) {
	onEachKind(t, func(t *testing.T, create func(string) (*lateFile, error)) {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		f, err := create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if left := names(t, dir); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
		if f, err = create(path); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.finish(); !errors.Is(err, os.ErrExist) {
			t.Errorf("it has replaced another: %v", err)
		}
		if err := f.remove(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(path); string(text) != "other" || err != nil {
			t.Errorf("the other has %q, %v", text, err)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("there are %v", left)
		}
	})
}
