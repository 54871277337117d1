package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTargetsAreFound(t *testing.T) {
	dir := t.TempDir()
	text := `package x
import "testing"
func FuzzA(f *testing.F) {}
func FuzzHelper(t *testing.T) {}
func Fuzzy(f *testing.F) {}
func FuzzB2(fuzz *testing.F) {}
func FuzzTwo(f *testing.F, n int) {}
var text = ` + "\"\\nfunc FuzzText(f *testing.F) {}\"\n"
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := listed{ImportPath: "p", Dir: dir, XTestGoFiles: []string{"a_test.go"}}.targets()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range got {
		names = append(names, f.pkg+"."+f.name)
	}
	if diff := cmp.Diff([]string{"p.FuzzA", "p.FuzzB2"}, names); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
