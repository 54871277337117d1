package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module's root, seen from this package.
const root = "../../.."

// packagesOnce is this checkout's answer, which "go list" takes seconds for.
var packagesOnce = sync.OnceValues(func() ([]string, error) {
	_, packages, err := checkout(context.Background())
	return packages, err
})

func tableOf(t *testing.T, tier string) []suite {
	t.Helper()
	packages, err := packagesOnce()
	if err != nil {
		t.Fatal(err)
	}
	suites, err := table(root, tier, packages)
	if err != nil {
		t.Fatal(err)
	}
	return suites
}

// Suites' names are valid in file names and options, each suite comes after its
// needs, and listed tests exist.
func TestTableHolds(t *testing.T) {
	for _, tier := range tiers {
		seen := map[string]bool{}
		for _, s := range tableOf(t, tier) {
			if seen[s.name] || strings.ContainsAny(s.name, " ,") {
				t.Errorf("%s: suite %q: want another name", tier, s.name)
			}
			if s.timeout == 0 || (len(s.packages) == 0) == (len(s.command) == 0) {
				t.Errorf("%s: suite %s needs a timeout, and packages or a command", tier, s.name)
			}
			for _, n := range s.needs {
				if !seen[n] {
					t.Errorf("%s: suite %s needs %s, which is no suite before it", tier, s.name, n)
				}
			}
			seen[s.name] = true
			checkTests(t, s)
		}
	}
}

// What a suite draws is the same in the second try.
func TestCasesAreDrawnOnce(t *testing.T) {
	for name, variable := range map[string]string{
		"chaos": "KATABOX_CHAOS_SEED", "cri": "KATABOX_TEST_CRI_DRAW", "units-boot": "KATABOX_TEST_GUEST_DRAW",
	} {
		drawn := func() string {
			for _, s := range tableOf(t, tierAll) {
				if s.name == name {
					return s.env[slices.IndexFunc(s.env, func(e string) bool { return strings.HasPrefix(e, variable+"=") })]
				}
			}
			return ""
		}
		t.Setenv(variable, "")
		if first := drawn(); first == "" || first == drawn() {
			t.Errorf("%s: each run draws %q", name, first)
		}
		t.Setenv(variable, "3/7")
		if got := drawn(); got != variable+"=3/7" {
			t.Errorf("%s: with a seed: %q", name, got)
		}
	}
}

func checkTests(t *testing.T, s suite) {
	t.Helper()
	if len(s.tests) == 0 {
		return
	}
	there, err := testsOf(filepath.Join(root, s.packages[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.tests {
		if !slices.Contains(names(there), name) {
			t.Errorf("suite %s: %s has no %s", s.name, s.packages[0], name)
		}
	}
}

// The tier that CI runs has each package in a row, and each test of a package that
// several suites share in one with the newest release.
func TestNothingIsForgotten(t *testing.T) {
	packages, err := packagesOnce()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	newest := map[string]bool{} // by package and name
	for _, s := range tableOf(t, tierAll) {
		for _, p := range s.packages {
			rows[p]++
		}
		if !strings.HasPrefix(s.name, "containerd-1.6/") && s.name != "virtiofsd" && len(s.packages) == 1 {
			for _, name := range s.tests {
				newest[s.packages[0]+" "+name] = true
			}
		}
	}
	for _, p := range packages {
		if rows[p] == 0 && !slices.Contains(elsewhere, p) {
			t.Errorf("%s runs in no row", p)
		}
	}
	for _, p := range []string{"./tests/containerd", "./tests/cri", "./tests/network"} {
		all, err := testsOf(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names(all) {
			if !newest[p+" "+name] {
				t.Errorf("%s of %s runs in no suite", name, p)
			}
		}
	}
}

func TestTestsByWhatTheyCall(t *testing.T) {
	all, err := testsOf(filepath.Join(root, "tests", "containerd"))
	if err != nil {
		t.Fatal(err)
	}
	each := names(all, "each", "eachOwn")
	for name, want := range map[string]bool{"TestExitCodeOfInit": true, "TestKernelIsMissing": true, "TestBootFailsAtEachStep": false, "TestStaticSizing": false} {
		if slices.Contains(each, name) != want {
			t.Errorf("%s runs with each release: %t, want %t", name, !want, want)
		}
	}
}

func TestChosen(t *testing.T) {
	all := []suite{
		{name: "build"}, {name: "tools", needs: []string{"build"}}, {name: "vet"},
		{name: "a/1", needs: []string{"tools"}}, {name: "a/2"}, {name: "ab"},
	}
	got, err := chosen(all, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, s := range got {
		found = append(found, s.name)
	}
	if diff := cmp.Diff([]string{"build", "tools", "a/1", "a/2"}, found); diff != "" {
		t.Errorf("chosen (-want +got):\n%s", diff)
	}
	if _, err := chosen(all, []string{"b"}); err == nil {
		t.Error("a name that is no suite's is taken")
	}
}

// A run that names no suite has one of each group; each of them is drawn now and then.
func TestDrawn(t *testing.T) {
	all := []suite{{name: "build"}, {name: "a", drawn: "x"}, {name: "b", drawn: "x"}, {name: "c", drawn: "y"}, {name: "vet"}}
	seen := map[string]bool{}
	for range 100 {
		got, err := chosen(all, nil)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, s := range got {
			found = append(found, s.name)
		}
		seen[strings.Join(found, " ")] = true
	}
	if want := map[string]bool{"build a c vet": true, "build b c vet": true}; !maps.Equal(seen, want) {
		t.Errorf("drawn: %v", seen)
	}
	if got, err := chosen(all, []string{"a", "b"}); err != nil || len(got) != 2 {
		t.Errorf("named: %v, %v", got, err)
	}
}

func TestSharded(t *testing.T) {
	parts := sharded(suite{name: "s", tests: []string{"A", "B", "C", "D", "E"}}, 2)
	if diff := cmp.Diff([][]string{{"A", "C", "E"}, {"B", "D"}}, [][]string{parts[0].tests, parts[1].tests}); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
}
