package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The page must repeat the list.
func TestCheckCompatPage(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(l.Root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"<!-- x: begin -->\nlist\n<!-- x: end -->\n": "",
		"<!-- x: begin -->\n<!-- x: end -->\n":       "differs",
		"list\n":                                     "lacks the marks",
	} {
		if err := os.WriteFile(filepath.Join(l.Root, "docs/compat.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := l.CheckCompatPage("x", "list\n")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
