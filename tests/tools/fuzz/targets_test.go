package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	p := listed{Dir: dir, XTestGoFiles: []string{"a_test.go"}}
	if err := p.find(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"FuzzA", "FuzzB2"}, p.targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

// A real package with two targets, one of which has a finding: it is reported
// with its input, in the words that the suites' runner reads.
func TestFindingIsReported(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "a_test.go": `package tiny
import "testing"
func FuzzFine(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }
func FuzzBad(f *testing.F) { f.Add([]byte("bad")); f.Fuzz(func(t *testing.T, b []byte) { if len(b) > 2 { t.Error("too long") } }) }
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	packages, err := findPackages(t.Context())
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages %v, %v", packages, err)
	}
	var b bytes.Buffer
	if packages[0].fuzz(t.Context(), 100*time.Millisecond, t.TempDir(), newReport(&b, true, packages)) {
		t.Error("nothing was found")
	}
	for _, want := range []string{
		`{"Action":"pass","Package":"tiny","Test":"FuzzFine"`, `{"Action":"fail","Package":"tiny","Test":"FuzzBad"`, "too long",
		`{"Action":"output","Package":"tiny","Output":"FAIL\n"}`, `{"Action":"fail","Package":"tiny"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("events lack %s:\n%s", want, b.String())
		}
	}
}
