package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
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
	r := &runner{
		options: options{perTarget: 3 * time.Second, atOnce: 2}, dir: t.TempDir(), out: newReport(&b, true, packages),
		slots: make(chan struct{}, 2),
	}
	if r.start(t.Context(), packages[0], 0)() {
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

func TestKeepNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("| input | `FuzzB`, `TestX`, FuzzAlmost |"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := func() []listed {
		return []listed{{ImportPath: "p", targets: []string{"FuzzA", "FuzzB"}}, {ImportPath: "q", targets: []string{"FuzzAl"}}}
	}
	got, err := keepNamed(all(), file)
	if err != nil || len(got) != 1 || got[0].ImportPath != "p" || !slices.Equal(got[0].targets, []string{"FuzzB"}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := keepNamed(all(), ""); err != nil || len(got) != 2 {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := keepNamed(all(), file); err == nil {
		t.Errorf("a file without names: %v", got)
	}
}

func TestWorkOf(t *testing.T) {
	out := "fuzz: elapsed: 3s, execs: 12 (4/sec)\nfuzz: elapsed: 6s, execs: 3456 (9/sec), new interesting: 1 (total: 2)\nPASS\n"
	if got, none := workOf(out).executions, workOf("PASS").executions; got != 3456 || none != 0 {
		t.Errorf("executions %d, %d", got, none)
	}
}

// All choices together have each package once.
func TestOneIn(t *testing.T) {
	packages := []listed{{ImportPath: "a"}, {ImportPath: "b"}, {ImportPath: "c"}, {ImportPath: "d"}, {ImportPath: "e"}}
	for first, want := range []string{"ad", "be", "c"} {
		got := ""
		for _, p := range oneIn(packages, 3, first) {
			got += p.ImportPath
		}
		if got != want {
			t.Errorf("one in 3 from %d: %q, want %q", first, got, want)
		}
	}
}
