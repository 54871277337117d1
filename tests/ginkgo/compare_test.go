package ginkgo

import (
	"regexp"
	"strings"
	"testing"
)

// The comparison must find new, vanished and fixed differences.
func TestReportsCompare(t *testing.T) {
	const report = `[{"SpecReports":[
		{"LeafNodeType":"BeforeSuite","State":"passed"},
		{"LeafNodeType":"It","ContainerHierarchyTexts":["a"],"LeafNodeText":"works","State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"new","State":"STATE","Failure":{"Message":"boom\nmore"}},
		{"LeafNodeType":"It","LeafNodeText":"mended","State":"passed"},
		{"LeafNodeType":"It","LeafNodeText":"meant","State":"STATE","Failure":{"Message":"no"}},
		{"LeafNodeType":"It","LeafNodeText":"not here","State":"skipped","Failure":{"Message":"no SELinux"}},
		{"LeafNodeType":"It","LeafNodeText":"benchmark","State":"skipped"}]}]`
	runc, err := parse([]byte(strings.ReplaceAll(report, "STATE", "passed")))
	if err != nil {
		t.Fatal(err)
	}
	kata, err := parse([]byte(strings.ReplaceAll(report, "STATE", "panicked")))
	if err != nil {
		t.Fatal(err)
	}
	runc.Name, kata.Name = "runc", "kata"
	list := []Exception{{"mended", ""}, {"meant", "so it is"}, {"gone", ""}}
	got := strings.Join(Complaints(runc, kata, list, true), "\n")
	want := "new: passes with runc; with kata failed: boom\nmore\nknown, but passes: mended\nknown, but not in the suite: gone"
	if got != want {
		t.Errorf("complaints:\n%s\nwant:\n%s", got, want)
	}
	got = SideBySide(runc, kata, list)
	want = "runc     4 passed,   0 failed,   1 skipped in 0s\nkata     2 passed,   2 failed,   1 skipped in 0s\n" +
		"  meant: runc passed, kata failed (known: so it is)\n  new: runc passed, kata failed (boom)\n"
	if got != want {
		t.Errorf("side by side:\n%s\nwant:\n%s", got, want)
	}
	if _, err := parse([]byte(`[]`)); err == nil {
		t.Error("an empty report was accepted")
	}
}

// What is left out of a run is the list, and not a case whose name goes on.
func TestSkipPattern(t *testing.T) {
	pattern := regexp.MustCompile(SkipPattern([]Exception{{"[sig] a (b)", ""}, {"[sig] c", ""}}))
	for name, want := range map[string]bool{"suite [sig] a (b)": true, "suite [sig] c": true, "suite [sig] cd": false, "suite s a b": false} {
		if pattern.MatchString(name) != want {
			t.Errorf("%q is skipped: %v, want %v", name, !want, want)
		}
	}
	if SkipPattern(nil) != "" {
		t.Error("an empty list skips something")
	}
}
