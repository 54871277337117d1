package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A template that one daemon has made is lent to the next ones, without what is not
// finished, and nothing is left after the last daemon.
func TestTemplatesAreLent(t *testing.T) {
	var stock templateStock
	for range 2 {
		if err := stock.join(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.RemoveAll(stock.dir) })
	maker, dir := filepath.Join(t.TempDir(), "templates"), stock.dir
	for _, name := range []string{"0123/memory", "0123/state", "0123/template.json", "0123/note", "making-45/memory", "lock"} {
		writeTestFile(t, filepath.Join(maker, name))
	}
	if err := stock.keep(maker); err != nil {
		t.Fatal(err)
	}
	borrower := filepath.Join(t.TempDir(), "templates")
	for range 2 { // again, as when nothing is new
		if err := stock.lend(borrower); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := namesBelow(t, borrower), "0123 0123/memory 0123/state 0123/template.json"; got != want {
		t.Errorf("lent: %s; want %s", got, want)
	}
	if err := stock.leave(); err != nil || namesBelow(t, dir) == "" {
		t.Errorf("with a daemon left: %v, templates %q", err, namesBelow(t, dir))
	}
	if err := stock.leave(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("after the last daemon: %v", err)
	}
}

// A daemon whose pods can have no template has nothing to keep.
func TestNoTemplateIsKept(t *testing.T) {
	var stock templateStock
	if err := stock.join(); err != nil {
		t.Fatal(err)
	}
	if err := stock.keep(filepath.Join(t.TempDir(), "templates")); err != nil {
		t.Error(err)
	}
	if err := stock.leave(); err != nil {
		t.Error(err)
	}
}

func writeTestFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// namesBelow returns the paths of all files below a directory, sorted.
func namesBelow(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}
